//! The links of this machine that carry a tunnel: which are there, and which path of an association goes by each.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use sallyport_links::Watch;
use sallyport_links_model::{Link, LinkChoice, select};
use sallyport_multipath::{PathId, PathSettings};
use sallyport_multipath_udp::{LinkSocket, Multipath, PathReport};

/// How often links are tried again that could not be used, or whose socket failed.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// The links of a connector. Clones share the list of the running connections.
#[derive(Debug, Clone)]
pub struct Links {
    pub(super) choice: LinkChoice,
    running: Arc<Mutex<Vec<Running>>>,
}

/// The address of an edge, and the association with it.
type Running = (SocketAddr, Weak<Multipath>);

/// The paths of a connection over several links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgePaths {
    /// The address of the edge.
    pub edge: SocketAddr,
    /// The paths, one for each link that is in use.
    pub paths: Vec<PathReport>,
}

impl Links {
    /// The links of this choice; `None` takes all that reach other networks.
    pub(crate) fn new(choice: Option<LinkChoice>) -> Self {
        Self { choice: choice.unwrap_or(LinkChoice::Auto), running: Arc::default() }
    }

    /// The paths of all connections that run now.
    #[must_use]
    pub fn paths(&self) -> Vec<EdgePaths> {
        let mut running = self.running.lock();
        running.retain(|(_, multipath)| multipath.strong_count() > 0);
        let of = |(edge, multipath): &Running| Some(EdgePaths { edge: *edge, paths: multipath.upgrade()?.paths() });
        running.iter().filter_map(of).collect()
    }

    /// The wanted links that are there now.
    ///
    /// # Errors
    /// There is none, or the kernel does not list its devices.
    pub(super) async fn present(&self) -> io::Result<Vec<Link>> {
        let links = self.select().await?;
        if !links.is_empty() {
            return Ok(links);
        }
        let text = match &self.choice {
            LinkChoice::Auto => "no link of this machine reaches other networks: name one with --link".to_owned(),
            LinkChoice::Listed(specs) => {
                let names: Vec<String> = specs.iter().map(|spec| spec.selector.to_string()).collect();
                format!("no link is up of those that are named: {}", names.join(", "))
            }
        };
        Err(io::Error::new(io::ErrorKind::AddrNotAvailable, text))
    }

    async fn select(&self) -> io::Result<Vec<Link>> {
        let devices = sallyport_links::devices().await?;
        // A connector has no tunnel device of its own.
        select(&self.choice, &devices, &[]).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
    }

    /// Gives the association a path by each of these links, and by those that appear later, until the association ends.
    ///
    /// # Errors
    /// None of the links can be used.
    pub(super) fn carry(&self, multipath: &Arc<Multipath>, edge: SocketAddr, links: &[Link]) -> io::Result<()> {
        let mut carried = Carried { edge, multipath: Arc::downgrade(multipath), paths: BTreeMap::new() };
        carried.update(multipath, links)?;
        self.running.lock().push((edge, Arc::downgrade(multipath)));
        let links = self.clone();
        tokio::spawn(async move {
            if let Err(error) = carried.follow(&links).await {
                tracing::warn!(%error, "links that appear or go are not noticed any more");
            }
        });
        Ok(())
    }
}

/// The links that carry an association.
struct Carried {
    edge: SocketAddr,
    multipath: Weak<Multipath>,
    /// By the name of the link.
    paths: BTreeMap<String, (Link, PathId, PathSettings)>,
}

impl Carried {
    /// Keeps a path for each link, until the association ends.
    async fn follow(mut self, links: &Links) -> io::Result<()> {
        let mut watch = Watch::open()?;
        let mut has_changed = true;
        let mut present = Vec::new();
        loop {
            if has_changed {
                match links.select().await {
                    Ok(found) => (present, has_changed) = (found, false),
                    Err(error) => tracing::debug!(%error, "the links are looked at again later"),
                }
            }
            let Some(multipath) = self.multipath.upgrade() else { return Ok(()) };
            // A link that cannot be used now is tried again.
            let _ = self.update(&multipath, &present);
            drop(multipath);
            tokio::select! {
                changed = watch.changed() => {
                    changed?;
                    has_changed = true;
                }
                () = tokio::time::sleep(TRY_AGAIN) => {}
            }
        }
    }

    /// Has a path by each of these links, and by no other.
    ///
    /// # Errors
    /// No link can be used; the error is that of the last one.
    fn update(&mut self, multipath: &Multipath, links: &[Link]) -> io::Result<()> {
        let alive: Vec<PathId> = multipath.paths().iter().map(|path| path.path).collect();
        let ip = self.edge.ip();
        // A socket from before a change of the device or its address leads nowhere.
        let is_same = |one: &Link, other: &Link| {
            let of = |link: &Link| (link.index, link.mtu_bytes, link.source_for(ip));
            one.name == other.name && of(one) == of(other)
        };
        self.paths.retain(|name, (held, path, _)| {
            let stays = alive.contains(path) && links.iter().any(|link| is_same(held, link));
            if !stays {
                tracing::info!(link = name, "a link carries the tunnel no more");
                multipath.remove_path(*path);
            }
            stays
        });
        let mut last = Ok(());
        for link in links {
            let weight = percent(link, links);
            match self.paths.get_mut(&link.name) {
                Some((_, path, settings)) if settings.weight != weight => {
                    settings.weight = weight;
                    multipath.set_path(*path, *settings);
                }
                Some(_) => {}
                None => last = self.add(multipath, link, weight),
            }
        }
        if self.paths.is_empty() { last } else { Ok(()) }
    }

    fn add(&mut self, multipath: &Multipath, link: &Link, weight: u8) -> io::Result<()> {
        let added = LinkSocket::open(link, self.edge).and_then(|mut socket| {
            socket.settings.weight = weight;
            let settings = socket.settings;
            Ok((multipath.add_link(socket)?, settings))
        });
        match added {
            Ok((path, settings)) => {
                tracing::info!(link = link.name, edge = %self.edge, "a link carries the tunnel");
                self.paths.insert(link.name.clone(), (link.clone(), path, settings));
                Ok(())
            }
            Err(error) => {
                tracing::debug!(%error, "a link cannot be used now");
                Err(error)
            }
        }
    }
}

/// The share of its rate that a link may carry, in percent: the link with the greatest weight has all of its rate.
fn percent(link: &Link, links: &[Link]) -> u8 {
    let greatest = links.iter().map(|link| link.properties.weight).max().unwrap_or(1).max(1);
    let percent = u32::from(link.properties.weight) * 100 / u32::from(greatest);
    u8::try_from(percent.clamp(1, 100)).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use sallyport_links_model::Properties;

    use super::*;

    fn link(name: &str, weight: u16) -> Link {
        Link {
            name: name.into(),
            index: 1,
            device: "lo".into(),
            addresses: vec!["127.0.0.2".parse().unwrap()],
            mtu_bytes: 1_500,
            properties: Properties { weight, ..Properties::default() },
        }
    }

    #[test]
    fn the_greatest_weight_is_the_whole_rate_and_each_link_keeps_a_little() {
        let links = [link("a", 4), link("b", 1), link("c", 1_000)];
        let percents: Vec<u8> = links.iter().map(|link| percent(link, &links)).collect();
        assert_eq!(percents, [1, 1, 100]);
        assert_eq!(percent(&links[1], &links[..2]), 25);
        assert_eq!(percent(&links[0], &links[..1]), 100);
    }

    #[tokio::test]
    async fn named_links_that_are_not_there_are_named_in_the_error() {
        let links = Links::new(Some(LinkChoice::parse(&["no-such-0", "192.0.2.77"]).unwrap()));
        let error = links.present().await.unwrap_err();
        assert_eq!(error.to_string(), "no link is up of those that are named: no-such-0, 192.0.2.77");
    }
}
