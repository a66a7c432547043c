"""The confluent-kafka (librdkafka) client of the tests; tests/clients/README.md has the command line and the output."""

import sys
import time

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from common import Tally, followed_input, idempotence, key, line, records, run, timestamp_ms, transactions


def common(options):
    config = {"bootstrap.servers": options.bootstrap, "client.id": "confluent-kafka"}
    transport = "SSL" if options.tls_ca else "PLAINTEXT"
    config["security.protocol"] = "SASL_" + transport if options.sasl_mechanism else transport
    if options.tls_ca:
        config["ssl.ca.location"] = options.tls_ca
    if options.tls_cert:
        config |= {"ssl.certificate.location": options.tls_cert, "ssl.key.location": options.tls_key}
    if options.sasl_mechanism == "OAUTHBEARER":
        config |= {
            "sasl.mechanism": "OAUTHBEARER", "enable.sasl.oauthbearer.unsecure.jwt": True,
            "sasl.oauthbearer.config": f"principal={options.sasl_user}",
        }
    elif options.sasl_mechanism:
        config |= {
            "sasl.mechanism": options.sasl_mechanism,
            "sasl.username": options.sasl_user, "sasl.password": options.sasl_password,
        }
    return config


def producer(options, **more):
    return Producer(common(options) | {
        "acks": options.acks,
        # librdkafka gives up on a request in flight after socket.timeout.ms; request.timeout.ms is the broker's limit.
        "socket.timeout.ms": options.request_timeout_ms, "request.timeout.ms": options.request_timeout_ms,
        "message.timeout.ms": options.delivery_timeout_ms, "linger.ms": options.linger_ms,
        "batch.size": options.batch_bytes, "max.in.flight.requests.per.connection": options.in_flight,
        "retry.backoff.ms": options.backoff_ms, "retry.backoff.max.ms": options.backoff_ms,
        "reconnect.backoff.ms": options.backoff_ms, "reconnect.backoff.max.ms": options.backoff_ms,
        "retries": 1000000, "log_level": 2,
    } | more)


def produce(options):
    tally = Tally()
    client = producer(options, **idempotence(options, "enable.idempotence"))

    def delivered(error, message):
        if error:
            tally.failed(int(message.value()), error)
        else:
            tally.acked(int(message.value()), message.partition(), message.offset())

    for n, ahead in records(options, tally):
        due = time.monotonic() + ahead
        while (left := due - time.monotonic()) > 0:
            client.poll(left)
        topic, partitions = options.target
        while True:
            try:
                client.produce(
                    topic, str(n).encode(), key(options, n), partition=n % partitions, on_delivery=delivered,
                    timestamp=timestamp_ms(options) or 0,
                )
                break
            except BufferError:
                client.poll(0.1)
        client.poll(0)
    client.flush(options.delivery_timeout_ms / 1000)
    tally.end()


def consume(options):
    client = Consumer(common(options) | {
        "group.id": options.group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
        "isolation.level": "read_committed" if options.read_committed else "read_uncommitted",
    })
    client.subscribe([options.topic])
    consumed, end = 0, time.monotonic() + options.timeout_ms / 1000
    while consumed < options.count:
        if time.monotonic() > end:
            sys.exit(f"gave up after {consumed} records")
        message = client.poll(0.5)
        if message is None:
            continue
        if message.error():
            sys.exit(f"after {consumed} records: {message.error()}")
        consumed += 1
        line({"n": int(message.value()), "partition": message.partition(), "offset": message.offset()})
    client.commit(asynchronous=False)
    client.close()
    line({"consumed": consumed})


def transact(options):
    client = producer(options, **{"transactional.id": options.transactional_id, "message.timeout.ms": 60000})
    client.init_transactions(30)
    for numbers, commits in transactions(options):

        def delivered(error, message):
            if error:
                sys.exit(f"not delivered: {error}")
            line({"n": int(message.value()), "partition": message.partition(), "offset": message.offset(), "committed": commits})

        client.begin_transaction()
        for n in numbers:
            client.produce(options.topic, str(n).encode(), partition=n % options.partitions, on_delivery=delivered)
        client.flush(30)
        if commits:
            client.commit_transaction(30)
        else:
            client.abort_transaction(30)
    line({"committed": 2 * options.count, "aborted": options.count})


def transactional(options):
    client = producer(options, **{"transactional.id": options.transactional_id, "message.timeout.ms": 60000})
    while True:
        try:
            client.init_transactions(60)
            return client
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def commit(client, options, numbers):
    """Sends records and commits them: their places, and what went wrong before the commit and with it."""
    places, committing = {}, False

    def delivered(error, message):
        if error is None:
            places[int(message.value())] = (message.partition(), message.offset())

    try:
        client.begin_transaction()
        for n in numbers:
            topic, partitions = options.target
            client.produce(topic, str(n).encode(), partition=n % partitions, on_delivery=delivered)
        client.flush(90)
        if len(places) < len(numbers):
            return places, "not delivered", False
        committing = True
        while True:
            try:
                client.commit_transaction(90)
                return places, None, True
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
    except KafkaException as error:
        return places, str(error), committing


def endless_transactions(options):
    """One transaction after another, each again until it is committed, or nobody can say whether it is."""
    ended, size = followed_input(options), options.count or 20
    client, n, start = transactional(options), options.first, time.monotonic()
    while not ended.is_set():
        time.sleep(max((n - options.first) / options.rate - (time.monotonic() - start), 0))
        numbers = range(n, n + size)
        places, error, committing = commit(client, options, numbers)
        if error is None:
            for number in numbers:
                line({"n": number, "partition": places[number][0], "offset": places[number][1]})
            n += size
            continue
        line({"aborted": error})
        try:
            client.abort_transaction(90)
        except KafkaException as fatal:
            line({"fatal": f"{error}, then {fatal}"})
            client = transactional(options)
            for number in numbers if committing else ():
                line({"n": number, "error": "committed or not"})
            n += size if committing else 0
    line({"sent": n - options.first})


def admin(options):
    client, limit = AdminClient(common(options)), options.timeout_ms / 1000
    new = NewTopic(options.topic, num_partitions=options.partitions, replication_factor=options.replication)
    client.create_topics([new])[options.topic].result(limit)
    line({"step": "create_topic"})
    while True:  # a node learns of a topic a moment after the controller
        topic = client.list_topics(options.topic, limit).topics[options.topic]
        if topic.error is None and len(topic.partitions) == options.partitions:
            break
    line({"step": "describe_topic", "partitions": len(topic.partitions)})
    cluster = client.describe_cluster().result(limit)
    line({
        "step": "describe_cluster", "cluster": cluster.cluster_id,
        "brokers": [f"{node.host}:{node.port}" for node in cluster.nodes],
    })
    resource = ConfigResource(ResourceType.TOPIC, options.topic)
    line({"step": "describe_configs", "entries": len(client.describe_configs([resource])[resource].result(limit))})
    line({"step": "list_groups", "groups": [group.group_id for group in client.list_consumer_groups().result(limit).valid]})
    client.delete_topics([options.topic])[options.topic].result(limit)
    line({"step": "delete_topic"})
    line({"steps": 6})


operation, options = run({
    "produce": produce, "consume": consume, "transact": transact, "transactions": endless_transactions, "admin": admin,
})
operation(options)
