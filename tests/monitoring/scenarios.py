"""What goes wrong, each in front of a hapax of its own, and the alerts that have to tell of it."""
import contextlib
import signal
import threading
import time

from confluent_kafka import KafkaException, Producer

import scrapes
import wire
import world

# Failing requests burn the budget of their job, whatever else they are.
BURNS = {"HapaxErrorBudgetBurn"}
# Whether the machine has processor time to spare is not the scenario's to say.
BUSY = {"HapaxOverheadHigh"}


class Scenario:
    """Something that goes wrong again and again until it is told to end."""

    alerts, besides = set(), set()
    flags = ()
    every = 0.3

    def __init__(self, folder, kafka):
        self.folder, self.kafka, self.done, self.failed = folder, kafka, threading.Event(), None
        self.name = type(self).__name__.lower()
        self.prepare()
        self.hapax = self.start()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def prepare(self):
        """What has to be there before hapax starts."""

    def start(self):
        return world.Hapax(self.name, self.folder, self.kafka.bootstrap, *self.flags)

    def begin(self):
        """Once, when Prometheus has seen hapax in health."""

    def turn(self):
        """Again and again."""

    def run(self):
        try:
            self.begin()
            while not self.done.wait(self.every):
                self.turn()
        except Exception as error:  # noqa: BLE001, it is told by the test
            if not self.done.is_set():
                self.failed = error

    def end(self):
        self.done.set()
        self.thread.join(10)
        self.hapax.end()

    def connection(self, topic=None):
        """A connection to hapax, at the port of the leader where there is a topic."""
        bootstrap = wire.Connection(self.hapax.bootstrap, self.name)
        if topic is None:
            return bootstrap
        with bootstrap:
            leader = bootstrap.leader(topic)
        connection = wire.Connection(leader, self.name)
        connection.leader(topic)
        return connection


def now_ms():
    return int(time.time() * 1000)


class RawProducer:
    """A producer whose batches are made by hand."""

    def __init__(self, scenario, topic):
        self.scenario, self.topic, self.sequence = scenario, topic, 0
        self.connect()
        self.producer = self.connection.producer_id()
        self.send()

    def connect(self):
        self.connection = self.scenario.connection(self.topic)

    def next(self):
        return wire.batch(self.producer, self.sequence, [b"x" * 100], now_ms())

    def write(self, records, **how):
        return self.connection.produce(self.topic, records, **how)

    def send(self):
        records = self.next()
        error, _ = self.write(records)
        if error:
            raise wire.KafkaError(error)
        self.sequence += 1
        return records


# Made before anything is scraped: what is asked of a topic that is being made fails.
TOPICS = ["orders", "payments", "clicks", "retried", "gapped", "reused", "resent", "transfers", "many", "kept", "failing"]
# Five more than have series of their own.
CROWD = [f"topic-{number}" for number in range(55)]


class Healthy(Scenario):
    """Two ordinary producers, and nothing that goes wrong."""

    every = 0.05

    def begin(self):
        common = {"bootstrap.servers": self.hapax.bootstrap, "linger.ms": 0, "log_level": 0}
        self.idempotent, self.plain = Producer(common | {"enable.idempotence": True}), Producer(common | {"acks": 1})

    def turn(self):
        for topic, producer in (("orders", self.idempotent), ("payments", self.idempotent), ("clicks", self.plain)):
            producer.produce(topic, b"x" * 200)
            producer.poll(0)


class Retries(Scenario):
    """Acknowledgements that get lost with their connection, and are asked for again."""

    alerts = {"HapaxDuplicateRatioHigh"}

    def begin(self):
        self.raw = RawProducer(self, "retried")

    def turn(self):
        for _ in range(3):
            self.raw.send()
        records = self.raw.next()
        self.raw.write(records, lose_answer=True)
        self.raw.connection.close()
        self.raw.connect()
        error, _ = self.raw.write(records)
        if error:
            raise wire.KafkaError(error)
        self.raw.sequence += 1


class Gaps(Scenario):
    """A producer that gave up on a batch and goes on, which brokers refuse for ever."""

    alerts = {"HapaxSequenceGaps", "HapaxOutOfOrderErrors"}
    besides = BURNS | {"HapaxDuplicateRatioHigh"}

    def begin(self):
        self.raw = RawProducer(self, "gapped")
        self.raw.sequence += 5

    def turn(self):
        self.raw.write(self.raw.next())


class Reuse(Scenario):
    """Other records under sequence numbers that were acknowledged."""

    alerts = {"HapaxSequenceReuse"}

    def begin(self):
        self.raw = RawProducer(self, "reused")

    def turn(self):
        self.raw.send()
        self.raw.sequence -= 1
        self.raw.write(wire.batch(self.raw.producer, self.raw.sequence, [b"y" * 100], now_ms()))
        self.raw.sequence += 1


class Resends(Scenario):
    """A client that raises its epoch and sends acknowledged records again."""

    alerts = {"HapaxDuplicatesInLog"}
    besides = BURNS
    every = 1

    def turn(self):
        raw = RawProducer(self, "resent")
        at, values = now_ms(), [b"once" * 20, b"twice" * 20]
        raw.write(wire.batch(raw.producer, raw.sequence, values, at))
        producer, epoch = raw.producer
        raw.write(wire.batch((producer, epoch + 1), 0, values, at))
        raw.connection.close()


class Fenced(Scenario):
    """Two instances of an application with one transactional id, over and over."""

    alerts = {"HapaxProducersFenced"}
    besides = BURNS
    every = 0.1
    round = 0

    def turn(self):
        self.round += 1
        first, second = (Producer({"bootstrap.servers": self.hapax.bootstrap, "transactional.id": f"shared-{self.round}", "linger.ms": 0, "log_level": 0})
                         for _ in range(2))
        first.init_transactions(20)
        first.begin_transaction()
        first.produce("transfers", b"x")
        first.flush(10)
        second.init_transactions(20)
        with contextlib.suppress(KafkaException):
            first.produce("transfers", b"y")
            first.flush(10)
            first.commit_transaction(10)


class Unreachable(Scenario):
    """Brokers that are not there."""

    alerts = {"HapaxUpstreamUnreachable"}
    besides = BURNS

    def start(self):
        return world.Hapax(self.name, self.folder, f"127.0.0.1:{world.free_port()}")

    def turn(self):
        with contextlib.suppress(OSError), self.connection() as connection:
            connection.leader("orders")


class Login(Scenario):
    """A password that is another one at the brokers."""

    alerts = {"HapaxUpstreamLoginRefused"}
    besides = BURNS | {"HapaxUpstreamUnreachable"}

    def start(self):
        password = self.folder / "password"
        password.write_text("wrong")
        password.chmod(0o600)
        return world.Hapax(self.name, self.folder, self.kafka.with_login, "--upstream-sasl-mechanism", "PLAIN", "--upstream-sasl-username", "alice",
                           "--upstream-sasl-password-file", str(password))

    def turn(self):
        with contextlib.suppress(OSError), self.connection() as connection:
            connection.leader("orders")


class Ports(Scenario):
    """More brokers than ports."""

    alerts = {"HapaxBrokerWithoutPort"}
    besides = BURNS

    def start(self):
        ports, admin = [world.free_port() for _ in range(3)], world.free_port()
        self.brokers = world.Process("kfaked", self.folder, [world.INSTALLED / "kfaked", "-ports", ",".join(map(str, ports)), "-admin", f"127.0.0.1:{admin}"])
        world.await_until("kfaked", 20, lambda: world.accepts(ports[0]))
        return world.Hapax(self.name, self.folder, f"127.0.0.1:{ports[0]}", ports=1)

    def begin(self):
        with contextlib.suppress(OSError), self.connection() as connection:
            connection.leader("orders")

    def end(self):
        super().end()
        self.brokers.end()


class Crowd(Scenario):
    """More clients than may be."""

    alerts = {"HapaxClientsTurnedAway"}
    besides = BURNS
    flags = ("--limits-connections", "2")

    def turn(self):
        with contextlib.ExitStack() as clients, contextlib.suppress(OSError):
            for _ in range(4):
                clients.enter_context(self.connection()).leader("orders")


class Windows(Scenario):
    """A producer for every message."""

    alerts = {"HapaxWindowsNearLimit", "HapaxWindowsFull"}
    besides = BURNS
    flags = ("--sequence-max-windows", "10")

    def begin(self):
        self.raw = RawProducer(self, "many")

    def turn(self):
        self.raw.producer, self.raw.sequence = self.raw.connection.producer_id(), 0
        self.raw.write(self.raw.next())


class Starved(Scenario):
    """A process that does not get the processor."""

    alerts = {"HapaxOverheadHigh"}
    every = 0.15

    def turn(self):
        self.hapax.signal(signal.SIGSTOP)
        time.sleep(0.15)
        self.hapax.signal(signal.SIGCONT)


class Reload(Scenario):
    """A configuration file that was changed for the worse."""

    alerts = {"HapaxConfigReloadFailed"}

    def prepare(self):
        self.file = self.folder / "hapax.yaml"
        self.file.write_text("log:\n  level: info\n")
        self.flags = ("--config", str(self.file))

    def begin(self):
        self.file.write_text("log:\n  levle: info\n")
        self.hapax.signal(signal.SIGHUP)


class Certificate(Scenario):
    """A certificate that is good for three more days."""

    alerts = {"HapaxCertificateExpiring"}

    def prepare(self):
        self.flags = scrapes.certificate(self.folder, 3)


class Drained(Scenario):
    """Told to end while a client stays."""

    alerts = {"HapaxDrainForced"}
    besides = BURNS
    flags = ("--drain-timeout", "3s")

    def begin(self):
        with self.connection() as client:
            client.leader("orders")
            self.hapax.signal(signal.SIGTERM)
            self.hapax.wait()


class Topics(Scenario):
    """More topics than may have series of their own."""

    alerts = {"HapaxLabelOverflow"}

    def begin(self):
        for topic in CROWD:
            RawProducer(self, topic).connection.close()


class Development(Scenario):
    """hapax dev where it is scraped."""

    alerts = {"HapaxDevUpstreamInUse"}

    def start(self):
        return world.Hapax(self.name, self.folder, None, "--no-demo", command="dev")


class State(Scenario):
    """A volume that is not there any more."""

    alerts = {"HapaxSnapshotFailing"}

    def prepare(self):
        self.directory = self.folder / "state"
        self.directory.mkdir()
        self.flags = ("--state-dir", str(self.directory), "--state-interval", "1s")

    def begin(self):
        self.raw = RawProducer(self, "kept")
        world.await_until("a snapshot", 30, lambda: self.hapax.value("hapax_snapshot_writes_total"))
        self.directory.rename(self.folder / "lost")
        self.directory.write_text("")

    def turn(self):
        self.raw.send()


class Errors(Scenario):
    """One request of two fails."""

    alerts = {"HapaxErrorBudgetBurn"}

    def begin(self):
        self.raw = RawProducer(self, "failing")

    def turn(self):
        self.raw.send()
        self.raw.connection.produce("no topic of that name", self.raw.next())


ALL = [Healthy, Retries, Gaps, Reuse, Resends, Fenced, Unreachable, Login, Ports, Crowd, Windows, Starved, Reload, Certificate, Drained, Topics,
       Development, State, Errors]
