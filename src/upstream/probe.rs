//! Whether the upstream is there and speaks Kafka.

use super::DialError;
use crate::wire::frame::{self, FrameError, Stranger};
use bytes::{BufMut, BytesMut};
use kafka_protocol::messages::{ApiKey, ApiVersionsRequest, RequestHeader};
use kafka_protocol::protocol::{Encodable, StrBytes};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The longest answer to ApiVersions that is believed.
const ANSWER_MAX: usize = 1024 * 1024;

/// Why the upstream is not ready for clients.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// It cannot be connected to.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The connection broke.
    #[error("the upstream hung up on an ApiVersions request: {0}")]
    Io(#[from] io::Error),
    /// It speaks another protocol.
    #[error("the upstream does not speak Kafka's protocol in plaintext: {0}")]
    Stranger(Stranger),
    /// What it says is no frame.
    #[error("the upstream does not speak Kafka's protocol: {0}")]
    Frame(FrameError),
    /// It says nothing.
    #[error("the upstream did not answer an ApiVersions request within {0:?}")]
    Silent(Duration),
}

/// Asks for the API versions, which any broker answers to anyone.
///
/// # Errors
///
/// Where no sound answer comes in time.
pub async fn ask(mut upstream: TcpStream, timeout: Duration) -> Result<(), ProbeError> {
    let exchange = async {
        upstream.write_all(&request()).await?;
        let mut prefix = [0; 4];
        upstream.read_exact(&mut prefix).await?;
        frame::length(prefix, frame::MIN_RESPONSE, ANSWER_MAX).map_err(|error| {
            Stranger::recognise(&prefix).map_or(ProbeError::Frame(error), ProbeError::Stranger)
        })?;
        let mut correlation_id = [0; 4];
        upstream.read_exact(&mut correlation_id).await?;
        Ok(())
    };
    let answered = tokio::time::timeout(timeout, exchange).await;
    answered.unwrap_or(Err(ProbeError::Silent(timeout)))
}

/// An ApiVersions request of the oldest version, which every broker knows.
fn request() -> BytesMut {
    let header = RequestHeader::default()
        .with_request_api_key(ApiKey::ApiVersions as i16)
        .with_client_id(Some(StrBytes::from_static_str("hapax")));
    let mut body = BytesMut::new();
    header
        .encode(&mut body, 1)
        .and_then(|()| ApiVersionsRequest::default().encode(&mut body, 0))
        .expect("both have nothing that could be out of range");
    let mut whole = BytesMut::with_capacity(4 + body.len());
    whole.put_u32(u32::try_from(body.len()).expect("it is a few bytes"));
    whole.extend_from_slice(&body);
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_is_one_that_every_broker_knows() {
        let expected = b"\0\0\0\x0f\0\x12\0\0\0\0\0\0\0\x05hapax";
        assert_eq!(request(), expected.as_slice());
    }
}
