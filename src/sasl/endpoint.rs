//! Asking an OIDC endpoint for a token, by client credentials (RFC 6749, 4.4).

use super::credentials::Client;
use crate::config::{Endpoint, Oauth, printable};
use crate::tls::{HandshakeError, Stream, Trust};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;

/// The longest answer that is believed.
const ANSWER_MAX: usize = 1024 * 1024;
/// What is kept of an endpoint's words.
const SAID_MAX: usize = 300;

/// Why no token was got. It holds no secret.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It cannot be connected to.
    #[error("cannot be connected to ({0})")]
    Connect(io::Error),
    /// It is reached, and there is no TLS with it.
    #[error("is reached, but {0}")]
    Tls(HandshakeError),
    /// It is reached, and speaks no HTTP, or stops.
    #[error("is reached, and the request broke ({0})")]
    Http(hyper::Error),
    /// It refuses.
    #[error(
        "gives no token ({status}{said}): look at upstream.sasl.oauth.clientId, at what is in upstream.sasl.oauth.clientSecretFile and at upstream.sasl.oauth.scope"
    )]
    Refused {
        /// The status of HTTP.
        status: StatusCode,
        /// What it says, behind a colon.
        said: String,
    },
    /// Its answer is none.
    #[error("answers what is no token: {0}")]
    Answer(&'static str),
    /// It does not answer.
    #[error("does not answer within {0:?} (timeouts.sasl)")]
    Silent(Duration),
}

/// What it gave.
pub(super) struct Answer {
    pub(super) token: String,
    pub(super) lifetime: Option<Duration>,
}

#[derive(Deserialize)]
struct Success {
    access_token: String,
    expires_in: Option<f64>,
}

/// RFC 6749, 5.2.
#[derive(Deserialize)]
struct Failure {
    error: String,
    error_description: Option<String>,
}

/// Asks once.
pub(super) async fn ask(
    oauth: &Oauth,
    client: &Client,
    trust: Option<&Trust>,
) -> Result<Answer, TokenError> {
    let endpoint = &oauth.endpoint;
    let stream = connect(endpoint, trust).await?;
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(TokenError::Http)?;
    let request = request(oauth, client)?;
    let asked = async move {
        let answer = sender.send_request(request).await;
        let (head, body) = answer.map_err(TokenError::Http)?.into_parts();
        let body = Limited::new(body, ANSWER_MAX).collect().await;
        let body = body.map_err(|_| TokenError::Answer("it breaks off, or is too long"))?;
        Ok((head.status, body.to_bytes()))
    };
    // The connection moves the bytes, and ends after the one request.
    let (_, answered) = tokio::join!(connection, asked);
    let (status, body) = answered?;
    read(status, &body, &client.secret)
}

async fn connect(endpoint: &Endpoint, trust: Option<&Trust>) -> Result<Stream, TokenError> {
    let address = (endpoint.host.as_str(), endpoint.port);
    let tcp = TcpStream::connect(address).await;
    let tcp = tcp.map_err(TokenError::Connect)?;
    match trust {
        Some(trust) => trust
            .connect(tcp, &endpoint.host)
            .await
            .map_err(TokenError::Tls),
        None => Ok(Stream::Plain(tcp)),
    }
}

fn request(oauth: &Oauth, client: &Client) -> Result<Request<Full<Bytes>>, TokenError> {
    let mut form = "grant_type=client_credentials".to_owned();
    if let Some(scope) = &oauth.scope {
        form.push_str("&scope=");
        form.push_str(&encoded(scope));
    }
    // RFC 6749, 2.3.1.
    let user = format!("{}:{}", encoded(&client.id), encoded(&client.secret));
    let mut basic = header::HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(user)))
        .map_err(|_| TokenError::Answer("the secret cannot be sent"))?;
    basic.set_sensitive(true);
    Request::builder()
        .method(Method::POST)
        .uri(&oauth.endpoint.path)
        .header(header::HOST, oauth.endpoint.authority())
        .header(header::AUTHORIZATION, basic)
        .header(header::ACCEPT, "application/json")
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .header(header::USER_AGENT, "hapax")
        .header(header::CONNECTION, "close")
        .body(Full::new(Bytes::from(form)))
        .map_err(|_| TokenError::Answer("the path of its URL cannot be asked for"))
}

/// As a form has it.
fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'*' => {
                out.push(char::from(byte));
            }
            b' ' => out.push('+'),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn read(status: StatusCode, body: &[u8], secret: &str) -> Result<Answer, TokenError> {
    if !status.is_success() {
        let said = match serde_json::from_slice(body) {
            Ok(Failure {
                error,
                error_description,
            }) => {
                let more = error_description.map(|more| format!(", {more}"));
                let said = format!(": {error}{}", more.unwrap_or_default());
                let said = said.replace(secret, "…");
                printable(&said.chars().take(SAID_MAX).collect::<String>())
            }
            Err(_) => String::new(),
        };
        return Err(TokenError::Refused { status, said });
    }
    let success: Success = serde_json::from_slice(body)
        .map_err(|_| TokenError::Answer("it is no JSON with an access_token"))?;
    let lifetime = success.expires_in.filter(|seconds| *seconds > 0.0);
    let lifetime = lifetime.map(|seconds| Duration::from_secs_f64(seconds.min(LIFETIME_MAX)));
    Ok(Answer {
        token: success.access_token,
        lifetime,
    })
}

/// A year, in seconds.
const LIFETIME_MAX: f64 = 366.0 * 86_400.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_token_or_says_why_not() {
        let read = |status, body: &str| {
            let status = StatusCode::from_u16(status).unwrap();
            read(status, body.as_bytes(), "s3cret")
                .map(|answer| (answer.token, answer.lifetime))
                .map_err(|error| error.to_string())
        };
        let got = read(
            200,
            r#"{"access_token":"abc","expires_in":300,"token_type":"Bearer"}"#,
        );
        assert_eq!(got, Ok(("abc".to_owned(), Some(Duration::from_secs(300)))));
        let got = read(200, r#"{"access_token":"abc"}"#);
        assert_eq!(got, Ok(("abc".to_owned(), None)));
        let got = read(200, r#"{"access_token":"abc","expires_in":1e300}"#);
        assert!(got.is_ok());
        assert!(read(200, "<html>").unwrap_err().contains("no JSON"));
        let refused = r#"{"error":"invalid_client","error_description":"no s3cret\n of mine"}"#;
        let said = read(401, refused).unwrap_err();
        assert!(
            said.contains("401 Unauthorized: invalid_client, no …"),
            "{said}"
        );
        assert!(!said.contains("s3cret") && !said.contains('\n'), "{said}");
        assert!(
            read(502, "<html>")
                .unwrap_err()
                .contains("(502 Bad Gateway)")
        );
    }

    #[test]
    fn what_separates_in_a_form_is_escaped() {
        assert_eq!(encoded("a b&c=é:~*"), "a+b%26c%3D%C3%A9%3A%7E*");
    }
}
