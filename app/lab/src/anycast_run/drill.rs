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
/// How long they are sent after that.
const AFTER: Duration = Duration::from_secs(3);
/// How long a request may take: less than the second after which the kernel sends a SYN again (RFC 6298).
const PATIENCE: Duration = Duration::from_millis(900);
/// How long routes may take to be as before.
const ROUTES_TIME: Duration = Duration::from_secs(60);

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
    /// back.
    ///
    /// # Errors
    /// There is no such edge, it is the only one of its site, or it does not come back.
    pub fn drill(&mut self, drill: Drill, edge: &str, rate: u32) -> Result<DrillReport, LabError> {
        let seat = self.edge_seat(edge)?;
        let internet = self.internet()?;
        if internet.topology.edges.get(seat.site).is_none_or(|edges| *edges < 2) {
            return Err(LabError::Unfit(format!("{edge} is the only edge of its site: add one by `anycast grow`")));
        }
        let clients = format!("{}-client", internet.sites[seat.site]);
        let asked = thread::scope(|scope| -> Result<_, LabError> {
            let (lab, clients) = (&*self, &clients);
            let asking = Family::ALL.map(|family| {
                let ask = move || {
                    let time = BEFORE + AFTER;
                    let asking =
                        Asking { node: clients, family, rate, time, requests: None, patience: PATIENCE, flows: 0 };
                    lab.ask_from(&asking)
                };
                (family, scope.spawn(ask))
            });
            thread::sleep(BEFORE);
            lab.take_away(drill, &seat)?;
            let join = |(family, asked): (Family, thread::ScopedJoinHandle<'_, Result<Asked, LabError>>)| {
                let asked = asked.join().unwrap_or_else(|_| Err(LabError::Unfit("the requests ended".to_owned())));
                asked.map(|asked| (family, asked))
            };
            asking.into_iter().map(join).collect::<Result<Vec<_>, _>>()
        });
        let is_back = self.bring_back(drill, &seat).and_then(|()| self.wait_for_routes(&seat));
        let asked = asked?;
        is_back?;
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
            Drill::Withdraw => self.birdc(&format!("{}-bird", seat.name), "disable \"sp_own*\"").map(drop),
            Drill::Kill => self.kill(&seat.name).map(drop),
            Drill::Silent => {
                let mut nft = kernel::inside(&self.space(&seat.name), std::path::Path::new("nft"));
                kernel::run(nft.args(["-f", "-"]), Internet::silence()).map(drop)
            }
        }
    }

    fn bring_back(&mut self, drill: Drill, seat: &Seat) -> Result<(), LabError> {
        match drill {
            Drill::Withdraw => self.birdc(&format!("{}-bird", seat.name), "enable \"sp_own*\"").map(drop),
            Drill::Kill => self.resume(&seat.name).map(drop),
            Drill::Silent => {
                let mut nft = kernel::inside(&self.space(&seat.name), std::path::Path::new("nft"));
                kernel::run(nft.args(["delete", "table", "inet", "silence"]), "").map(drop)
            }
        }
    }

    /// Waits until the router of the edge's site has its routes, and the edge its tunnel.
    pub(super) fn wait_for_routes(&self, seat: &Seat) -> Result<(), LabError> {
        let SeatKind::Edge(edge) = seat.kind else { return Ok(()) };
        let router = format!("{}-router", self.internet()?.sites[seat.site]);
        let began = Instant::now();
        loop {
            let has = |family: u8| {
                let words = format!("show route protocol edge{edge}_{family}");
                self.birdc(&router, &words).is_ok_and(|answer| answer.contains(&format!("edge{edge}_{family}")))
            };
            if has(4) && has(6) {
                return Ok(());
            }
            if began.elapsed() > ROUTES_TIME {
                let what = format!("an announcement of {} at {router}", seat.name);
                let seen = self.birdc(&router, "show protocols").unwrap_or_default().replace('\n', "; ");
                return Err(LabError::Late { what, seconds: ROUTES_TIME.as_secs(), seen });
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits for the announcements of all edges.
    pub(crate) fn wait_for_all_routes(&self) -> Result<(), LabError> {
        let edges = self.of(Role::Edge);
        edges.iter().try_for_each(|edge| self.wait_for_routes(&self.edge_seat(&edge.name)?))
    }
}
