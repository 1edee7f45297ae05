//! Drills: an edge goes, in one of several ways, while clients of its site send new requests.

use std::{
    fmt,
    str::FromStr,
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{
    Asked,
    landing::{Asking, Family},
};
use crate::{
    anycast::{Internet, Seat, SeatKind},
    error::LabError,
    kernel,
    plan::Role,
    state::Lab,
};

/// How long requests are sent before the edge goes.
const BEFORE: Duration = Duration::from_millis(1_500);
/// How long they are sent after its routes are gone.
const AFTER: Duration = Duration::from_secs(2);
/// How long routes may take to come or go.
const ROUTES_TIME: Duration = Duration::from_secs(60);
/// How long they may take to go when an edge waits for its connections: it does for five minutes.
const DRAIN_TIME: Duration = Duration::from_secs(400);

/// How an edge goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Drill {
    /// An operator drains it.
    Withdraw,
    /// All its processes are killed. Its kernel closes their connections.
    Kill,
    /// It says and hears nothing any more, while its links stay up.
    Silent,
}

impl FromStr for Drill {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "withdraw" => Ok(Self::Withdraw),
            "kill" => Ok(Self::Kill),
            "silent" => Ok(Self::Silent),
            _ => Err("use withdraw, kill or silent".to_owned()),
        }
    }
}

impl fmt::Display for Drill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Withdraw => "withdraw",
            Self::Kill => "kill",
            Self::Silent => "silent",
        })
    }
}

/// What became of requests meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrillReport {
    /// How the edge went.
    pub drill: Drill,
    /// The edge.
    pub edge: String,
    /// The node of the clients.
    pub clients: String,
    /// The requests in each family.
    pub asked: Vec<(Family, Asked)>,
}

impl Lab {
    /// Takes an edge away while clients of its site send this many new requests a second in each family, and brings it
    /// back. `patience` is how long a request may take.
    ///
    /// # Errors
    /// There is no such edge, it is the only one of its site, or it does not come back.
    pub fn drill(&mut self, drill: Drill, edge: &str, rate: u32, patience: Duration) -> Result<DrillReport, LabError> {
        let seat = self.edge_seat(edge)?;
        let internet = self.internet()?;
        if internet.topology.edges.get(seat.site).is_none_or(|edges| *edges < 2) {
            return Err(LabError::Unfit(format!("{edge} is the only edge of its site: add one by `anycast grow`")));
        }
        let clients = self.clients_of(seat.site)?;
        let mut loads = Vec::new();
        for family in Family::ALL {
            let asking = Asking { node: &clients, family, rate, requests: None, patience, flows: 0 };
            loads.push((family, self.ask_from(&asking)?));
        }
        thread::sleep(BEFORE);
        let is_away = self.take_away(drill, &seat).and_then(|()| self.wait_for_route(&seat, false));
        thread::sleep(AFTER);
        let asked: Result<Vec<_>, LabError> =
            loads.into_iter().map(|(family, load)| Ok((family, load.end()?))).collect();
        let is_back = self.bring_back(drill, &seat).and_then(|()| self.wait_for_route(&seat, true));
        is_away?;
        is_back?;
        let asked = asked?;
        Ok(DrillReport { drill, edge: edge.to_owned(), clients, asked })
    }

    pub(super) fn edge_seat(&self, edge: &str) -> Result<Seat, LabError> {
        self.internet()?;
        let is_edge = |seat: &Seat| matches!(seat.kind, SeatKind::Edge(_));
        let seats = self.seats();
        match seats.iter().find(|seat| seat.name == edge && is_edge(seat)) {
            Some(seat) => Ok(seat.clone()),
            None => Err(LabError::NoSuch {
                name: edge.to_owned(),
                known: seats.into_iter().filter(is_edge).map(|seat| seat.name).collect(),
            }),
        }
    }

    fn take_away(&self, drill: Drill, seat: &Seat) -> Result<(), LabError> {
        match drill {
            Drill::Withdraw => self.as_owner(&["anycast", "drain", &seat.name]).map(drop),
            Drill::Kill => self.kill(&seat.name).map(drop),
            Drill::Silent => {
                let mut nft = kernel::inside(&self.space(&seat.name), std::path::Path::new("nft"));
                kernel::run(nft.args(["-f", "-"]), Internet::silence()).map(drop)
            }
        }
    }

    fn bring_back(&mut self, drill: Drill, seat: &Seat) -> Result<(), LabError> {
        match drill {
            Drill::Withdraw => self.as_owner(&["anycast", "drain", &seat.name, "--off"]).map(drop),
            Drill::Kill => self.resume(&seat.name).map(drop),
            Drill::Silent => {
                let mut nft = kernel::inside(&self.space(&seat.name), std::path::Path::new("nft"));
                kernel::run(nft.args(["delete", "table", "inet", "silence"]), "").map(drop)
            }
        }
    }

    /// Waits until the router of the edge's site has its routes in both families, or has none.
    pub(super) fn wait_for_route(&self, seat: &Seat, is_wanted: bool) -> Result<(), LabError> {
        let SeatKind::Edge(edge) = seat.kind else { return Ok(()) };
        let router = format!("{}-router", self.internet()?.sites[seat.site]);
        let limit = if is_wanted { ROUTES_TIME } else { DRAIN_TIME };
        let began = Instant::now();
        loop {
            let has = |family: u8| {
                let words = format!("show route protocol edge{edge}_{family}");
                self.birdc(&router, &words).is_ok_and(|answer| answer.contains(&format!("edge{edge}_{family}")))
            };
            if has(4) == is_wanted && has(6) == is_wanted {
                return Ok(());
            }
            if began.elapsed() > limit {
                let what = if is_wanted { "an announcement" } else { "the end of announcements" };
                let what = format!("{what} of {} at {router}", seat.name);
                let seen = self.birdc(&router, "show protocols").unwrap_or_default().replace('\n', "; ");
                return Err(LabError::Late { what, seconds: limit.as_secs(), seen });
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits for the announcements of all edges.
    pub(crate) fn wait_for_all_routes(&self) -> Result<(), LabError> {
        let edges = self.of(Role::Edge);
        edges.iter().try_for_each(|edge| self.wait_for_route(&self.edge_seat(&edge.name)?, true))
    }
}
