//! Asks which server answers, from this machine.

use std::{
    net::{IpAddr, SocketAddr},
    str::FromStr,
    time::{Duration, Instant},
};

use sallyport_catchment::{MAX_CHAOS_BYTES, Prefix, Row, SiteNames, Source, chaos_answer, chaos_question};
use sallyport_client::ApiClient;
use sallyport_model::is_private;
use serde::Serialize;
use time::OffsetDateTime;
use tokio::net::UdpSocket;

use super::import::send_rows;
use crate::{
    context::Context,
    failure::{Failure, Kind},
    output::{self, Output},
    view::columns::{self, Column},
};

/// How long a server may take.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How often a server is asked.
const TRIES: usize = 3;
const DNS_PORT: u16 = 53;

/// A server: an address, with a port unless it is that of the DNS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Server(SocketAddr);

impl FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address = text.parse::<IpAddr>().map(|address| SocketAddr::new(address, DNS_PORT));
        let address = address.or_else(|_| text.parse()).map_err(|_| "expected ADDRESS or ADDRESS:PORT".to_owned())?;
        if address.port() == 0 { Err("expected a port from 1 to 65535".to_owned()) } else { Ok(Self(address)) }
    }
}

/// What a server said.
#[derive(Debug, Serialize)]
struct Asked {
    server: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    site: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// Asks each server, and adds the answers to the catchment.
pub(super) async fn run(
    context: &Context,
    client: &ApiClient,
    servers: &[Server],
    network: Option<Prefix>,
    names: &SiteNames,
) -> anyhow::Result<()> {
    let (mut rows, mut asked) = (Vec::new(), Vec::new());
    for Server(server) in servers {
        let none = || None;
        let mut one =
            Asked { server: server.to_string(), answer: none(), site: none(), prefix: none(), ms: None, why: none() };
        match ask(*server, network, names, &mut one).await {
            Ok(row) => rows.push(row),
            Err(why) => one.why = Some(why),
        }
        asked.push(one);
    }
    send_rows(client, &rows).await?;
    context.output.data(&asked, |asked| table(&context.output, asked))?;
    if rows.is_empty() {
        let why = asked.iter().find_map(|one| one.why.clone()).unwrap_or_default();
        return Err(Failure::new(Kind::Refused, format!("no server named a site: {}", output::safe(&why))).into());
    }
    Ok(())
}

async fn ask(server: SocketAddr, network: Option<Prefix>, names: &SiteNames, asked: &mut Asked) -> Result<Row, String> {
    let any: IpAddr = if server.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let socket = UdpSocket::bind((any, 0)).await.map_err(|error| error.to_string())?;
    socket.connect(server).await.map_err(|error| error.to_string())?;
    let (answer, time) = answer_of(&socket).await?;
    asked.answer = Some(answer.text.clone());
    asked.ms = Some(time.as_secs_f64() * 1e3);
    let site = names.of_text(&answer.text).ok_or("the answer names no site: --site-of TEXT=REGION gives it one")?;
    asked.site = Some(site.to_string());
    // A resolver has asked for itself.
    let own = if answer.is_resolver { server.ip() } else { socket.local_addr().map_err(|e| e.to_string())?.ip() };
    let prefix = match network {
        Some(network) => network,
        None if is_private(own) => return Err(format!("{own} is a private address: give the network by --network")),
        None => Prefix::of(own),
    };
    asked.prefix = Some(prefix.to_string());
    let now = OffsetDateTime::now_utc().unix_timestamp();
    // The time to a resolver is not the one to the site.
    let round_trip = (!answer.is_resolver).then_some(time);
    Ok(Row { requests: 1, round_trip, ..Row::new(prefix, site.clone(), Source::Chaos, now) })
}

/// The answer of a server, and how long it took.
async fn answer_of(socket: &UdpSocket) -> Result<(sallyport_catchment::ChaosAnswer, Duration), String> {
    let mut buffer = [0; MAX_CHAOS_BYTES + 1];
    for _ in 0..TRIES {
        let mut id = [0; 2];
        getrandom::fill(&mut id).map_err(|error| error.to_string())?;
        let id = u16::from_be_bytes(id);
        let began = Instant::now();
        socket.send(&chaos_question(id)).await.map_err(|error| error.to_string())?;
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        // Answers to other questions are passed over.
        while let Ok(received) = tokio::time::timeout_at(deadline, socket.recv(&mut buffer)).await {
            let bytes = received.map_err(|error| error.to_string())?;
            match chaos_answer(id, &buffer[..bytes]) {
                Ok(answer) => return Ok((answer, began.elapsed())),
                Err(sallyport_catchment::ChaosError::OtherQuestion) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }
    Err(format!("the server did not answer {TRIES} questions within {} s each", TIMEOUT.as_secs()))
}

fn table(output: &Output, asked: &[Asked]) -> String {
    let shown = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    columns::table(
        output,
        [
            Column::Plain("SERVER"),
            Column::Cut("ANSWER"),
            Column::Plain("SITE"),
            Column::Plain("NETWORK"),
            Column::Plain("TIME"),
            Column::Cut("WHY"),
        ],
        asked.iter().map(|one| {
            [
                one.server.clone(),
                shown(&one.answer),
                shown(&one.site),
                shown(&one.prefix),
                one.ms.map_or_else(|| "-".to_owned(), crate::command::socket::stats::ms),
                one.why.clone().unwrap_or_default(),
            ]
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_addresses() {
        for (text, address) in [
            ("192.0.2.53", "192.0.2.53:53"),
            ("192.0.2.53:5353", "192.0.2.53:5353"),
            ("2001:db8::53", "[2001:db8::53]:53"),
            ("[2001:db8::53]:5353", "[2001:db8::53]:5353"),
        ] {
            assert_eq!(text.parse::<Server>().unwrap().0.to_string(), address);
        }
        for bad in ["", "resolver.example", "192.0.2.53:0", "192.0.2.53:x"] {
            assert!(bad.parse::<Server>().is_err(), "{bad}");
        }
    }
}
