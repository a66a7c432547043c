//! shotover with its Kafka parts, as a peer of the load benchmark.

fn main() {
    shotover::runner::Shotover::new().run_block();
}
