//! Configuration from control to edges, over a real NATS server.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use sallyport_bus::{
    Bus, BusConfig, BusCredentials, BusError, ConfigKey, ConfigProgress, ConfigSource, ConfigValue, Nats, PublishStats,
    Snapshot, SourceFuture, follow_config, publish_config,
};
use sallyport_model::{AccountId, CredentialHash, MachineId, NetworkId, SshLogin};
use sallyport_network::route::{MachineRoute, NetworkRoute};
use tokio::task::JoinHandle;

use crate::nats::{Nats as Server, until};

/// A store that the test writes, and the bus beside it.
#[derive(Clone, Default)]
pub(crate) struct Shelf {
    pub(crate) bus: Bus,
    kept: Arc<Mutex<HashMap<ConfigKey, ConfigValue>>>,
}

impl Shelf {
    pub(crate) fn source(&self) -> Arc<dyn ConfigSource> {
        Arc::new(self.clone())
    }

    fn login(number: u8, key: &str) -> SshLogin {
        SshLogin { account: AccountId::from_random([number; 16]), keys: vec![key.to_owned()] }
    }

    /// Commits to the store, and publishes on the bus as control does.
    fn put(&self, number: u8, key: &str) {
        self.put_quietly(number, key);
        self.bus.ssh_logins.put(Self::login(number, key));
    }

    /// Commits to the store alone, as when the program dies between commit and publication.
    fn put_quietly(&self, number: u8, key: &str) {
        let value = ConfigValue::SshLogin(Self::login(number, key));
        self.kept.lock().unwrap().insert(value.key(), value);
    }

    fn remove(&self, number: u8) {
        let account = AccountId::from_random([number; 16]);
        self.kept.lock().unwrap().remove(&ConfigKey::SshLogin(account));
        self.bus.ssh_logins.remove(account);
    }
}

impl ConfigSource for Shelf {
    fn read(&self, key: ConfigKey) -> SourceFuture<'_, Option<ConfigValue>> {
        Box::pin(async move { Ok(self.kept.lock().unwrap().get(&key).cloned()) })
    }

    fn all(&self) -> SourceFuture<'_, Vec<ConfigValue>> {
        Box::pin(async move { Ok(self.kept.lock().unwrap().values().cloned().collect()) })
    }

    fn changed_elsewhere(&self, _key: ConfigKey) {}
}

struct Follower {
    bus: Bus,
    followed: ConfigProgress,
    task: JoinHandle<()>,
}

async fn follower(server: &Server, dir: &std::path::Path) -> Follower {
    let nats = Nats::connect(&server.config()).await.unwrap();
    let (bus, followed) = (Bus::default(), ConfigProgress::default());
    let known = Snapshot::read(dir).unwrap().unwrap_or_default();
    known.entries.values().for_each(|value| bus.apply_config(value.clone()));
    let task = tokio::spawn(follow_config(nats, bus.clone(), dir.to_owned(), known, followed.clone()));
    Follower { bus, followed, task }
}

fn key_of(bus: &Bus, number: u8) -> Option<String> {
    let account = AccountId::from_random([number; 16]).to_string();
    bus.ssh_logins.get(&account).map(|login| login.keys[0].clone())
}

async fn publisher(server: &Server, shelf: &Shelf) -> (JoinHandle<()>, PublishStats) {
    let (nats, stats) = (Nats::connect(&server.config()).await.unwrap(), PublishStats::default());
    let task = tokio::spawn(publish_config(nats, shelf.bus.clone(), shelf.source(), 1, stats.clone()));
    (task, stats)
}

#[tokio::test(flavor = "multi_thread")]
async fn edges_follow_what_control_publishes_and_start_from_disk_without_it() {
    let Some(mut server) = Server::start("") else { return };
    let (shelf, dir) = (Shelf::default(), tempfile::tempdir().unwrap());
    shelf.put(1, "before");
    let (control, stats) = publisher(&server, &shelf).await;
    let edge = follower(&server, dir.path()).await;
    until("what was before", || key_of(&edge.bus, 1).as_deref() == Some("before") && edge.followed.is_present()).await;
    shelf.put(2, "one");
    until("what is new", || key_of(&edge.bus, 2).as_deref() == Some("one")).await;
    shelf.put(2, "two");
    shelf.remove(1);
    until("what is other, and gone", || {
        key_of(&edge.bus, 2).as_deref() == Some("two") && key_of(&edge.bus, 1).is_none()
    })
    .await;
    until("the snapshot", || Snapshot::read(dir.path()).unwrap().is_some_and(|known| known.entries.len() == 1)).await;
    // Edges may receive an entry before its writer receives the acknowledgement.
    until("the writer knows too", || stats.written() >= 4).await;

    // Without control and NATS, the edge serves the entries on disk, and applies later changes afterwards.
    edge.task.abort();
    control.abort();
    server.kill();
    let edge = follower(&server, dir.path()).await;
    assert_eq!((key_of(&edge.bus, 2).as_deref(), edge.followed.is_present()), (Some("two"), false));
    shelf.put(3, "meanwhile");
    shelf.remove(2);
    // Data loss on the NATS server takes nothing from the edge before control has filled the bucket again.
    server.wipe();
    server.resume();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(key_of(&edge.bus, 2).as_deref(), Some("two"));
    let (_control, _) = publisher(&server, &shelf).await;
    until("what changed meanwhile", || {
        key_of(&edge.bus, 3).as_deref() == Some("meanwhile") && key_of(&edge.bus, 2).is_none()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_of_machines_reaches_edges_and_their_disk() {
    let Some(server) = Server::start("") else { return };
    let (shelf, dir) = (Shelf::default(), tempfile::tempdir().unwrap());
    let machine = MachineRoute {
        id: MachineId::from_random([3; 16]),
        name: "db".parse().unwrap(),
        credential: CredentialHash([4; 32]),
        addresses: vec!["10.20.0.1".parse().unwrap()],
        routes: vec!["10.30.0.0/16".parse().unwrap()],
        groups: vec!["web".parse().unwrap()],
        is_exit: true,
    };
    let office = NetworkRoute {
        id: NetworkId::from_random([1; 16]),
        account: AccountId::from_random([2; 16]),
        name: "office".parse().unwrap(),
        ranges: vec!["10.20.0.0/24".parse().unwrap()],
        policy: Some("network = \"office\"".to_owned()),
        machines: vec![machine.clone()],
    };
    let value = ConfigValue::Network(Box::new(office.clone()));
    let key = value.key();
    shelf.kept.lock().unwrap().insert(key, value);
    let (_control, _) = publisher(&server, &shelf).await;
    let edge = follower(&server, dir.path()).await;
    until("the network", || edge.bus.networks.of_machine(machine.id).is_some_and(|found| *found == office)).await;
    until("the snapshot", || Snapshot::read(dir.path()).unwrap().is_some_and(|known| known.entries.len() == 1)).await;
    shelf.kept.lock().unwrap().remove(&key);
    shelf.bus.networks.remove(office.id);
    until("its end", || edge.bus.networks.of_machine(machine.id).is_none()).await;
    until("the empty snapshot", || Snapshot::read(dir.path()).unwrap().is_some_and(|known| known.entries.is_empty()))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_is_too_large_hinders_no_other_and_is_forgotten_by_edges() {
    let Some(server) = Server::start("") else { return };
    let (shelf, dir) = (Shelf::default(), tempfile::tempdir().unwrap());
    let large = "k".repeat(1_100_000);
    shelf.put(1, "goes");
    shelf.put(2, "grows");
    let (control, _) = publisher(&server, &shelf).await;
    let edge = follower(&server, dir.path()).await;
    until("all is known", || key_of(&edge.bus, 1).is_some() && key_of(&edge.bus, 2).is_some()).await;

    // Changes published at once, and changes found by comparison when control starts.
    shelf.put(2, &large);
    until("what is too large is forgotten", || key_of(&edge.bus, 2).is_none()).await;
    shelf.put(3, "comes");
    until("the entry after it arrives", || key_of(&edge.bus, 3).as_deref() == Some("comes")).await;
    control.abort();
    for number in 10..30 {
        shelf.put_quietly(number, &large);
    }
    shelf.put_quietly(4, "came meanwhile");
    shelf.remove(1);
    let (_control, stats) = publisher(&server, &shelf).await;
    until("what went and came meanwhile", || {
        key_of(&edge.bus, 1).is_none() && key_of(&edge.bus, 4).as_deref() == Some("came meanwhile")
    })
    .await;
    assert_eq!(stats.too_large(), 21);
    shelf.put(2, "fits again");
    until("what fits again", || key_of(&edge.bus, 2).as_deref() == Some("fits again")).await;
    until("one less is too large", || stats.too_large() == 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_controls_over_one_store_never_bring_an_older_state_back() {
    let Some(server) = Server::start("") else { return };
    let (shelf, dir) = (Shelf::default(), tempfile::tempdir().unwrap());
    let other = Shelf { bus: Bus::default(), kept: shelf.kept.clone() };
    let _one = publisher(&server, &shelf).await;
    let _two = publisher(&server, &other).await;
    let edge = follower(&server, dir.path()).await;
    for turn in 0..100_u32 {
        let (this, that) = if turn % 2 == 0 { (&shelf, &other) } else { (&other, &shelf) };
        this.put(1, &turn.to_string());
        that.put(1, &format!("{turn} again"));
    }
    until("the last state", || key_of(&edge.bus, 1).as_deref() == Some("99 again")).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(key_of(&edge.bus, 1).as_deref(), Some("99 again"));
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_and_addresses_are_clear_errors() {
    let Some(server) = Server::start("authorization { user: sallyport, password: right }") else { return };
    let connect = |config: BusConfig| async move { Nats::connect(&config).await.map(|_| ()) };
    let with = |password: &str| {
        let (user, password) = ("sallyport".to_owned(), password.to_owned());
        BusConfig { credentials: BusCredentials::Password { user, password }, ..server.config() }
    };
    connect(with("right")).await.unwrap();
    for config in [with("wrong"), server.config()] {
        let error = connect(config).await.unwrap_err();
        assert!(matches!(error, BusError::Credentials { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("refuses the credentials") && !text.contains("wrong"), "{text}");
    }
    for bad in ["", "127.0.0.1:4222", "http://127.0.0.1:4222", "nats://user:secret@127.0.0.1:4222", "nats://"] {
        let config = BusConfig { servers: vec![bad.to_owned()], ..server.config() };
        let error = connect(config).await.unwrap_err();
        assert!(matches!(error, BusError::Address { .. }), "{bad}: {error:?}");
    }
    // An unreachable server is no error: the connection is retried in the background.
    let away = BusConfig { servers: vec!["nats://127.0.0.1:1".to_owned()], ..server.config() };
    assert!(!Nats::connect(&away).await.unwrap().link().is_up);
}
