"""Makes programs start by a loader at a path from their own folder: start.c,
which tells why, becomes their first code.

usage: add_start.py CODE LOADER PROGRAM...
  CODE     start.c as bytes (deploy/packages/make builds it)
  LOADER   the loader's path, from each program's folder
"""

import pathlib
import struct
import sys

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SEGMENT = struct.Struct("<IIQQQQQQ")
# What HEADER and SEGMENT have where.
TYPE, ENTRY, TABLE, COUNT = 1, 4, 5, 10
KIND, FLAGS, OFFSET, ADDRESS, PHYSICAL, FILE_SIZE, SIZE, ALIGN = range(8)
EXECUTABLE, SHARED = 2, 3
LOAD, INTERPRETER, TABLE_ITSELF = 1, 3, 6
READ_EXECUTE = 5


def segments_of(data, header):
    return [list(SEGMENT.unpack_from(data, header[TABLE] + i * SEGMENT.size))
            for i in range(header[COUNT])]


def round_up(value, unit):
    return -(-value // unit) * unit


def segment_for(address, offset, size, align):
    return [LOAD, READ_EXECUTE, offset, address, address, size, size, align]


def with_start(data, code, loader):
    """The program's bytes with the code at their end."""
    header = list(HEADER.unpack_from(data))
    if data[:6] != b"\x7fELF\x02\x01" or header[TYPE] not in (EXECUTABLE,
                                                             SHARED):
        raise ValueError("is no 64-bit ELF program")
    segments = segments_of(data, header)
    loads = [one for one in segments if one[KIND] == LOAD]
    if [one[KIND] for one in segments].count(INTERPRETER) != 1:
        raise ValueError("names no loader: it is static, or has the code "
                         "already")
    align = max(one[ALIGN] for one in loads)
    offset = round_up(len(data), align)
    address = round_up(max(one[ADDRESS] + one[SIZE] for one in loads), align)
    path = loader.encode() + b"\0"
    num_headers = len(segments) + 1
    parameters = address + len(code)
    table = parameters + 32 + round_up(len(path), 8)
    size = table - address + num_headers * SEGMENT.size
    added = segment_for(address, offset, size, align)
    # The last of the loads stays the last: the kernel wants their order.
    behind = segments.index(loads[-1]) + 1
    for_loader = [list(one) for one in
                  segments[:behind] + [added] + segments[behind:]]
    for one in for_loader:
        if one[KIND] == TABLE_ITSELF:
            one[OFFSET] = offset + table - address
            one[ADDRESS] = one[PHYSICAL] = table
            one[FILE_SIZE] = one[SIZE] = num_headers * SEGMENT.size
    for_kernel = [one for one in segments[:behind] + [added]
                  + segments[behind:] if one[KIND] != INTERPRETER]
    block = code + struct.pack("<4Q", parameters, header[ENTRY], table,
                               num_headers)
    block += path.ljust(round_up(len(path), 8), b"\0")
    block += b"".join(SEGMENT.pack(*one) for one in for_loader)
    header[ENTRY] = address
    made = bytearray(data.ljust(offset, b"\0") + block)
    HEADER.pack_into(made, 0, *header)
    for i, one in enumerate(for_kernel):
        SEGMENT.pack_into(made, header[TABLE] + i * SEGMENT.size, *one)
    return bytes(made)


def main(arguments):
    if len(arguments) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    code = pathlib.Path(arguments[0]).read_bytes()
    for name in arguments[2:]:
        path = pathlib.Path(name)
        try:
            path.write_bytes(with_start(path.read_bytes(), code,
                                        arguments[1]))
        except ValueError as error:
            print(f"error: {path} {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
