"""A reader for the little DER that key stores, tokens and names need."""


def der_elements(data: bytes) -> list[tuple[int, bytes, bytes]]:
    """Return consecutive DER elements as (tag, content, whole element); ValueError if malformed."""
    found = []
    at = 0
    while at < len(data):
        start, tag = at, data[at]
        size = data[at + 1] if at + 1 < len(data) else 0x80
        at += 2
        if size == 0x80 or size > 0x84 or tag & 0x1F == 0x1F:
            raise ValueError("not in DER")
        if size > 0x80:
            at, size = at + size - 0x80, int.from_bytes(data[at : at + size - 0x80])
        if at + size > len(data):
            raise ValueError("a DER element ends beyond the data")
        found.append((tag, data[at : at + size], data[start : at + size]))
        at += size
    return found


def oid_text(content: bytes) -> str:
    """Return the dotted form of an object identifier's content bytes."""
    numbers, current = [], 0
    for byte in content:
        current = current << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(current)
            current = 0
    if not numbers:
        return "?"
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
