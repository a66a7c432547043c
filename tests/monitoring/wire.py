"""As much of Kafka's protocol as a producer that does what no client offers needs: any epoch and sequence, any number of tries."""
import socket
import struct

PRODUCE, METADATA, INIT_PRODUCER_ID = 0, 3, 22


def crc_table():
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        yield byte


CRC_TABLE = list(crc_table())


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def varint(number):
    number, out = (number << 1) ^ (number >> 63), b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def text(value):
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value)) + value.encode()


def batch(producer, sequence, values, time_ms):
    """A batch of records without keys; producer is its id and epoch."""
    records = b""
    for place, value in enumerate(values):
        body = b"\0" + varint(0) + varint(place) + varint(-1) + varint(len(value)) + value + varint(0)
        records += varint(len(body)) + body
    count = len(values)
    rest = struct.pack(">hiqqqhii", 0, count - 1, time_ms, time_ms, *producer, sequence, count) + records
    return struct.pack(">qiibI", 0, 9 + len(rest), 0, 2, crc32c(rest)) + rest


class Connection:
    """A connection to a broker or to hapax; a request has its answer, unless it is only sent."""

    def __init__(self, address, client="raw"):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        self.client, self.correlation = client, 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, key, version, body):
        self.correlation += 1
        frame = struct.pack(">hhi", key, version, self.correlation) + text(self.client) + body
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def answer(self):
        (length,) = struct.unpack(">i", self.exactly(4))
        return self.exactly(length)[4:]

    def exactly(self, count):
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise ConnectionError("closed before the whole answer")
            data += piece
        return data

    def ask(self, key, version, body):
        self.send(key, version, body)
        return self.answer()

    def leader(self, topic):
        """Makes the topic if need be; returns the address of the one broker there is."""
        answer = self.ask(METADATA, 2, struct.pack(">i", 1) + text(topic))
        (length,) = struct.unpack_from(">h", answer, 8)
        (port,) = struct.unpack_from(">i", answer, 10 + length)
        return f"{answer[10:10 + length].decode()}:{port}"

    def producer_id(self, transactional_id=None):
        error, producer, epoch = struct.unpack_from(">hqh", self.ask(INIT_PRODUCER_ID, 0, text(transactional_id) + struct.pack(">i", 60000)), 4)
        if error:
            raise KafkaError(error)
        return producer, epoch

    def produce(self, topic, records, lose_answer=False):
        """Returns the broker's error and the offset."""
        body = text(None) + struct.pack(">hii", -1, 10000, 1) + text(topic) + struct.pack(">iii", 1, 0, len(records)) + records
        if lose_answer:
            self.send(PRODUCE, 3, body)
            return None
        answer = self.ask(PRODUCE, 3, body)
        return struct.unpack_from(">hq", answer, 4 + 2 + len(topic) + 4 + 4)


class KafkaError(Exception):
    """A broker's error code."""
