# Around the README's lines for kafka-python: one record.
# SNIPPET
producer.send("orders", b"1").get(30)
producer.close()
