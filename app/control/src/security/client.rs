//! The client of a request, as limits and policies distinguish clients.

use std::{
    convert::Infallible,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use axum::extract::FromRequestParts;
use http::{header, request::Parts};
use sallyport_model::{ClientAddr, misleads};
use sallyport_store::SessionClient;

/// How much of a program's `User-Agent` is kept, in characters.
const MAX_PROGRAM_CHARS: usize = 120;

/// The address of a client, as limits distinguish clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client(pub(crate) IpAddr);

impl<S: Sync> FromRequestParts<S> for Client {
    type Rejection = Infallible;

    /// Requests without an address count as one client; edges always send one.
    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(Self::at(parts.extensions.get::<ClientAddr>().map(|client| client.0.ip())))
    }
}

impl Client {
    /// The client at this address.
    pub(crate) fn at(address: Option<IpAddr>) -> Self {
        Self(client_of(address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))))
    }
}

/// The address of a client, and the program's own name (`User-Agent`), for sessions.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientInfo(pub(crate) SessionClient);

impl<S: Sync> FromRequestParts<S> for ClientInfo {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        let address = parts.extensions.get::<ClientAddr>().map(|client| client.0.ip().to_canonical().to_string());
        let agent = parts.headers.get(header::USER_AGENT).map(|agent| String::from_utf8_lossy(agent.as_bytes()));
        let program = agent.map(|agent| agent.chars().filter(|c| !misleads(*c)).take(MAX_PROGRAM_CHARS).collect());
        Ok(Self(SessionClient { address, program: program.filter(|program: &String| !program.is_empty()) }))
    }
}

/// The address of a client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientAddress(pub(crate) IpAddr);

impl<S: Sync> FromRequestParts<S> for ClientAddress {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        let address = parts.extensions.get::<ClientAddr>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |c| c.0.ip());
        Ok(Self(address.to_canonical()))
    }
}

/// The unit of limits: an IPv4 address, or the /64 network of an IPv6 address.
pub(crate) fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_customer_is_one_client() {
        let client = |text: &str| client_of(text.parse().unwrap());
        assert_eq!(client("2001:db8:1:2::1"), client("2001:db8:1:2:ffff::9"));
        assert_ne!(client("2001:db8:1:2::1"), client("2001:db8:1:3::1"));
        assert_eq!(client("::ffff:192.0.2.1"), client("192.0.2.1"));
        assert_ne!(client("192.0.2.1"), client("192.0.2.2"));
    }
}
