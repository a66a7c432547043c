"""What an ELF file says it is, read from its bytes."""
import struct
from dataclasses import dataclass

MACHINES = {62: "amd64", 183: "arm64"}

_PROGRAM_DYNAMIC = 2
_PROGRAM_INTERPRETER = 3
_DYNAMIC_NEEDED = 1


class NotElf(Exception):
    """The bytes are no 64-bit little-endian ELF file."""


@dataclass(frozen=True)
class Elf:
    """The machine that it is for, as images name it, and whether it needs anything to be loaded."""

    machine: str
    static: bool


def read(binary):
    """The header and the program headers of `binary`."""
    if binary[:6] != b"\x7fELF\x02\x01":
        raise NotElf(f"begins with {binary[:6].hex()}")
    (machine,) = struct.unpack_from("<H", binary, 18)
    return Elf(MACHINES.get(machine, f"e_machine {machine}"), not _loads_anything(binary))


def _loads_anything(binary):
    """A program that is linked statically, by position or not, names no interpreter and needs no library."""
    (programs,) = struct.unpack_from("<Q", binary, 32)
    size, count = struct.unpack_from("<HH", binary, 54)
    for number in range(count):
        start = programs + number * size
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", binary, start)
        if kind == _PROGRAM_INTERPRETER:
            return True
        if kind == _PROGRAM_DYNAMIC and _needs_libraries(binary[offset : offset + length]):
            return True
    return False


def _needs_libraries(dynamic):
    return any(tag == _DYNAMIC_NEEDED for tag, _ in struct.iter_unpack("<QQ", dynamic))
