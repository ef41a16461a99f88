"""The data source `postroad`: the messages of a node as a table, to be read and to be written."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from postroad.pipeline.source_batch import BatchReader, FilteringReader
from postroad.pipeline.source_options import (
    READ,
    READ_STREAM,
    WRITE,
    WRITE_STREAM,
    plain_errors,
    reading_of,
    writing_of,
    wrong,
)
from postroad.pipeline.source_reading import check_schema, schema_of
from postroad.pipeline.source_stream import StreamReader
from postroad.pipeline.source_writing import BatchWriter, Sending, StreamWriter


class PostroadSource(DataSource):
    """Found by Spark without registration, through the package `pyspark_postroad`."""

    @classmethod
    def name(cls) -> str:
        return "postroad"

    @plain_errors()
    def schema(self) -> StructType:
        return schema_of(reading_of(self.options))

    @plain_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        reading = reading_of(self.options, READ)
        check_schema(schema, reading)
        return FilteringReader(reading, schema) if reading.push else BatchReader(reading, schema)

    @plain_errors()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        reading = reading_of(self.options, READ_STREAM)
        check_schema(schema, reading)
        return StreamReader(reading, schema)

    @plain_errors()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        _only_more(overwrite)
        return BatchWriter(Sending.of(writing_of(self.options, WRITE), schema))

    @plain_errors()
    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        _only_more(overwrite)
        return StreamWriter(Sending.of(writing_of(self.options, WRITE_STREAM), schema))


def _only_more(overwrite: bool) -> None:
    if overwrite:
        raise wrong(
            "what was sent cannot be overwritten: write with mode append", "POSTROAD_WRITE_MODE"
        )
