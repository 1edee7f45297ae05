//! WebSockets by extended CONNECT (RFC 8441, RFC 9220): the request as an HTTP/1.1 upgrade, and the response to it.
//!
//! Origins get WebSockets over HTTP/1.1. So the request path sees an extended CONNECT as the upgrade that its origin
//! gets. The edge is the client of that handshake: it makes the key, and checks the origin's answer to the key.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{
    HeaderMap, HeaderValue, Method, Response, StatusCode, Version,
    header::{CONNECTION, CONTENT_LENGTH, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, TRANSFER_ENCODING, UPGRADE},
    request::Parts,
};
use sha1::{Digest, Sha1};

/// What is hashed behind the key (RFC 6455 section 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Whether `:protocol` of an extended CONNECT names WebSockets.
#[must_use]
pub fn is_websocket(protocol: &[u8]) -> bool {
    protocol.eq_ignore_ascii_case(b"websocket")
}

/// The key of a handshake with an origin. In the extensions of a head, it marks an extended CONNECT for a WebSocket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebSocketKey {
    key: HeaderValue,
}

/// The origin opened no WebSocket: its response is successful, and does not switch to the WebSocket of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the origin opened no websocket")]
pub struct NoWebSocket;

impl WebSocketKey {
    /// The key of these random bytes.
    #[must_use]
    pub fn from_random(random: [u8; 16]) -> Self {
        let key = HeaderValue::try_from(STANDARD.encode(random)).unwrap_or(HeaderValue::from_static(""));
        Self { key }
    }

    /// Turns the head of an extended CONNECT into that of an HTTP/1.1 upgrade. A key of the client is replaced.
    ///
    /// The head has passed [`check_request`](crate::refuse::check_request) as a GET of the client's version.
    //= RFC 8441 section 5
    //# Implementations using this extended CONNECT to bootstrap WebSockets do not do the processing of the
    //# Sec-WebSocket-Key and Sec-WebSocket-Accept header fields of [RFC6455] as that functionality has been superseded
    //# by the :protocol pseudo-header field.
    pub fn to_upgrade(&self, head: &mut Parts) {
        (head.method, head.version) = (Method::GET, Version::HTTP_11);
        head.headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        head.headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        head.headers.insert(SEC_WEBSOCKET_KEY, self.key.clone());
    }

    /// Turns the 101 of an origin into the response that opens the client's WebSocket.
    ///
    /// # Errors
    /// The origin did not accept this key.
    pub fn to_opened<B>(&self, response: &mut Response<B>) -> Result<(), NoWebSocket> {
        if response.status() != StatusCode::SWITCHING_PROTOCOLS || !self.is_accepted_by(response.headers()) {
            return Err(NoWebSocket);
        }
        *response.status_mut() = StatusCode::OK;
        //= RFC 9110 section 9.3.6
        //# A server MUST NOT send any Transfer-Encoding or Content-Length header fields in a 2xx (Successful) response
        //# to CONNECT.
        for name in [CONNECTION, UPGRADE, SEC_WEBSOCKET_ACCEPT, CONTENT_LENGTH, TRANSFER_ENCODING] {
            response.headers_mut().remove(name);
        }
        Ok(())
    }

    /// Whether the fields accept the key (RFC 6455 section 4.1).
    fn is_accepted_by(&self, headers: &HeaderMap) -> bool {
        let is_one = |name, expected: &[u8]| {
            let mut values = headers.get_all(name).iter();
            values.next().is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(expected))
                && values.next().is_none()
        };
        is_one(UPGRADE, b"websocket")
            && headers.get_all(SEC_WEBSOCKET_ACCEPT).iter().map(HeaderValue::as_bytes).eq([self.accept().as_bytes()])
    }

    //= RFC 6455 section 4.2.2
    //# The value of this header field is constructed by concatenating /key/, defined above in step 4 in Section 4.2.2,
    //# with the string "258EAFA5-E914-47DA-95CA-C5AB0DC85B11", taking the SHA-1 hash of this concatenated value to
    //# obtain a 20-byte value and base64-encoding (see Section 4 of [RFC4648]) this 20-byte hash.
    fn accept(&self) -> String {
        STANDARD.encode(Sha1::new().chain_update(self.key.as_bytes()).chain_update(GUID).finalize())
    }
}
