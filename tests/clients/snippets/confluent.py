# Around the README's lines for confluent-kafka: one record.
# SNIPPET

def delivered(error, message):
    assert error is None, error


producer.produce("orders", b"1", on_delivery=delivered)
assert producer.flush(30) == 0
