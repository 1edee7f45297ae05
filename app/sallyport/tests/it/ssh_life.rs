//! Stock OpenSSH clients as tunnels: how they connect, freeze, are replaced, and are disconnected.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use tokio::net::TcpSocket;

use crate::{
    harness::{Origin, Program, curl, wait_until},
    ssh::{Account, host_in, make_key, to},
};

/// A socket with a tunnel, which its forward port determines.
struct Served {
    socket: String,
    host: String,
    tunnel: String,
    forward_port: String,
}

impl Served {
    fn new(account: &Account) -> Self {
        let (socket, host, _) = account.socket("http");
        let tunnel = account.home.json(&["tunnel", "create", "--socket-id", &socket]);
        let forward_port = tunnel["forward_port"].as_u64().unwrap().to_string();
        Self {
            socket,
            host,
            tunnel: tunnel["id"].as_str().unwrap_or_else(|| panic!("{tunnel}")).to_owned(),
            forward_port,
        }
    }

    fn tunnels_up(&self, account: &Account) -> u64 {
        account.home.json(&["socket", "show", "--socket-id", &self.socket])["tunnels_up"].as_u64().unwrap()
    }
}

/// Requests one after the other until stopped; all must get 200.
struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    worker: thread::JoinHandle<()>,
}

impl Load {
    fn start(account: &Account, host: &str) -> Self {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (ca, url) = (account.up.ca.clone(), account.up.url(host, "/load"));
        let (stopped, counter) = (stop.clone(), answered.clone());
        let worker = thread::spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                let response = curl(&ca, &url, &[]);
                assert_eq!(response.status, 200, "{}{}", response.head, response.body);
                counter.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { stop, answered, worker }
    }

    fn wait_for_more(&self, count: usize) {
        let before = self.answered.load(Ordering::SeqCst);
        wait_until("more requests", || (self.answered.load(Ordering::SeqCst) >= before + count).then_some(()));
    }

    fn all_good(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.worker.join().unwrap();
    }
}

#[test]
fn a_fresh_login_on_the_same_tunnel_replaces_the_old_one_without_a_failed_request() {
    let Some(account) = Account::new(&[]) else { return };
    let served = Served::new(&account);
    let (old_origin, new_origin) = (Origin::start("old"), Origin::start("new"));
    let old = account.ssh(&[&to(&served.forward_port, old_origin.address)]);
    let load = Load::start(&account, &served.host);
    load.wait_for_more(5);
    // A response that takes longer than the change.
    let (ca, url) = (account.up.ca.clone(), account.up.url(&served.host, "/trickle/30"));
    let before = old_origin.count();
    let slow = thread::spawn(move || curl(&ca, &url, &[]));
    wait_until("the slow request to begin", || (old_origin.count() >= before + 2).then_some(()));
    let _new = account.ssh(&[&to(&served.forward_port, new_origin.address)]);
    wait_until("requests at the new origin", || (new_origin.count() > 0).then_some(()));
    let so_far = old_origin.count();
    load.wait_for_more(10);
    assert!(old_origin.count() <= so_far + 1, "the old login gets nothing new");
    assert_eq!(served.tunnels_up(&account), 1);
    let slow = slow.join().unwrap();
    assert_eq!((slow.status, slow.body.len()), (200, 150), "{}", slow.head);
    assert!(!old.ended().success());
    assert!(old.output().contains("replaced by a newer login"), "{}", old.output());
    load.all_good();
}

#[test]
fn a_fresh_login_by_name_replaces_that_of_the_same_key_and_shares_with_others() {
    // Longer than the test: no keepalive finds a frozen client.
    let Some(account) = Account::new(&["--keepalive", "10m"]) else { return };
    let (socket, host, _) = account.socket("http");
    let by_name = format!("{}:80", host.split('.').next().unwrap());
    let up = || account.home.json(&["socket", "show", "--socket-id", &socket])["tunnels_up"].clone();
    let (lost, fresh, other) = (Origin::start("lost"), Origin::start("fresh"), Origin::start("other"));
    let frozen = account.ssh(&[&to(&by_name, lost.address)]);
    assert!(account.up.curl(&host, "/", &[]).body.starts_with("lost "));
    // The network is down, and the server does not know it.
    frozen.signal("STOP");
    let _back = account.ssh(&[&to(&by_name, fresh.address)]);
    for _ in 0..10 {
        assert!(account.up.curl(&host, "/", &[]).body.starts_with("fresh "));
    }
    assert_eq!((up(), lost.count()), (1.into(), 1));
    frozen.signal("CONT");
    assert!(!frozen.ended().success());
    assert!(frozen.output().contains("replaced by a newer login"), "{}", frozen.output());

    let key = make_key(&account.home, "second");
    account.home.json(&["ssh-key", "add", &format!("{key}.pub")]);
    let second = Program::start(&mut account.ssh_as(&account.user, "second", &[&to(&by_name, other.address)]));
    second.wait_for("is open");
    assert_eq!(up(), 2);
    wait_until("both to be used", || {
        assert_eq!(account.up.curl(&host, "/", &[]).status, 200);
        (fresh.count() > 10 && other.count() > 0).then_some(())
    });
}

#[test]
fn a_connector_and_an_ssh_client_take_a_tunnel_from_each_other() {
    let Some(account) = Account::new(&[]) else { return };
    let served = Served::new(&account);
    let (by_ssh, by_connector) = (Origin::start("ssh"), Origin::start("connector"));
    let forward = to(&served.forward_port, by_ssh.address);
    let first = account.ssh(&[&forward]);
    let load = Load::start(&account, &served.host);
    load.wait_for_more(3);
    let connector = account.home.connector(&served.socket, by_connector.address, &["--tunnel-id", &served.tunnel]);
    assert!(!first.ended().success());
    assert!(first.output().contains("replaced by a connector"), "{}", first.output());
    wait_until("requests at the connector", || (by_connector.count() > 0).then_some(()));
    let so_far = by_ssh.count();
    load.wait_for_more(5);
    assert_eq!((by_ssh.count(), served.tunnels_up(&account)), (so_far, 1));

    let _second = account.ssh(&[&forward]);
    assert_eq!(connector.ended().code(), Some(5), "{}", connector.output());
    assert!(connector.output().contains("replaced by an ssh client"), "{}", connector.output());
    wait_until("requests at the ssh client", || (by_ssh.count() > so_far).then_some(()));
    load.wait_for_more(5);
    assert_eq!(served.tunnels_up(&account), 1);
    load.all_good();
}

#[test]
fn the_same_key_gets_the_same_name_and_port_again() {
    let Some(account) = Account::new(&["--ssh-guests", "--keepalive", "10m", "--port-range", "23100-23199"]) else {
        return;
    };
    for key in ["guest", "stranger"] {
        make_key(&account.home, key);
    }
    let origin = Origin::start("origin");
    let (web, raw) = (to("80", origin.address), to("0", origin.address));
    let came = |user: &str, key: &str| {
        let program = Program::start(&mut account.ssh_as(user, key, &[&web, &raw]));
        wait_until("both addresses", || (program.output().matches("is open  (-R").count() == 2).then_some(()));
        let mut addresses: Vec<String> =
            program.output().lines().filter(|line| line.contains("is open  (-R")).map(str::to_owned).collect();
        addresses.sort();
        (program, addresses)
    };
    let gone = |addresses: &[String]| {
        let host = host_in(addresses.iter().find(|line| line.contains("(-R 80)")).unwrap());
        wait_until("the address to be removed", || (account.up.curl(&host, "/", &[]).status == 404).then_some(()));
    };
    for (user, key) in [(account.user.as_str(), "key"), ("anybody", "guest")] {
        let (first, addresses) = came(user, key);
        drop(first);
        gone(&addresses);
        // Meanwhile another client takes the port.
        let (stranger, others) = came("anybody", "stranger");
        let (second, again) = came(user, key);
        assert_eq!(again, addresses, "{user}");
        assert!(others.iter().all(|other| !addresses.contains(other)), "{others:?}");
        // Clients of one address without an account have five sockets at a time.
        drop(stranger);
        gone(&others);
        // Two at a time get two sockets.
        let (third, more) = came(user, key);
        assert!(more.iter().all(|other| !addresses.contains(other)), "{more:?}");
        drop(third);
        gone(&more);
        // The network is down, and the server does not know it.
        second.signal("STOP");
        let (back, again) = came(user, key);
        assert_eq!(again, addresses, "{user}");
        let host = host_in(addresses.iter().find(|line| line.contains("(-R 80)")).unwrap());
        assert!(account.up.curl(&host, "/", &[]).body.starts_with("origin "));
        second.signal("CONT");
        assert!(!second.ended().success());
        assert_eq!(account.up.curl(&host, "/", &[]).status, 200, "{}", back.output());
        drop(back);
        gone(&addresses);
    }
}

#[test]
fn a_client_that_froze_leaves_the_pool_and_the_others_go_on() {
    let Some(account) = Account::new(&["--keepalive", "2s", "--keepalive-missed", "2"]) else { return };
    let (socket, host, _) = account.socket("http");
    let label = host.split('.').next().unwrap().to_owned();
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let frozen = account.ssh(&[&to(&format!("{label}:80"), one.address)]);
    let _lively = account.ssh(&[&to(&format!("{label}:81"), two.address)]);
    let up = || account.home.json(&["socket", "show", "--socket-id", &socket])["tunnels_up"].clone();
    assert_eq!(up(), 2);
    wait_until("both to be used", || {
        assert_eq!(account.up.curl(&host, "/", &[]).status, 200);
        (one.count() > 0 && two.count() > 0).then_some(())
    });
    frozen.signal("STOP");
    wait_until("the frozen client to be disconnected", || (up() == 1).then_some(()));
    for _ in 0..10 {
        assert!(account.up.curl(&host, "/", &[]).body.starts_with("two "));
    }
    assert_eq!(account.metric("sallyport_edge_ssh_clients_lost_total"), 1);
    frozen.signal("CONT");
    assert!(!frozen.ended().success());
}

#[test]
fn clients_of_a_removed_tunnel_or_key_are_disconnected() {
    let Some(account) = Account::new(&[]) else { return };
    let origin = Origin::start("origin");
    let served = Served::new(&account);
    let ssh = account.ssh(&[&to(&served.forward_port, origin.address)]);
    assert_eq!(account.up.curl(&served.host, "/", &[]).status, 200);
    let delete = ["tunnel", "delete", "--socket-id", &served.socket, "--tunnel-id", &served.tunnel];
    assert!(account.home.run(&delete).status.success());
    assert!(!ssh.ended().success());
    assert!(ssh.output().contains("the tunnel was deleted"), "{}", ssh.output());
    // One of two: the login continues with the other.
    let (first, second) = (Served::new(&account), Served::new(&account));
    let both = account.ssh(&[&to(&first.forward_port, origin.address), &to(&second.forward_port, origin.address)]);
    wait_until("both addresses", || (both.output().matches("is open").count() == 2).then_some(()));
    assert!(account.home.run(&["socket", "delete", "--socket-id", &first.socket]).status.success());
    both.wait_for("the tunnel was deleted");
    assert_eq!(account.up.curl(&first.host, "/", &[]).status, 404);
    assert_eq!(account.up.curl(&second.host, "/", &[]).status, 200);
    assert!(account.home.run(&["ssh-key", "rm", "key"]).status.success());
    assert!(!both.ended().success());
    assert!(both.output().contains("was removed from the account"), "{}", both.output());
    let again = account.ssh_as(&account.user, "key", &["80:127.0.0.1:1"]).output().unwrap();
    assert_eq!(again.status.code(), Some(255));
}

#[test]
fn an_orderly_end_finishes_an_ssh_download_and_informs_the_client() {
    let Some(account) = Account::new(&[]) else { return };
    let origin = Origin::start("origin");
    let served = Served::new(&account);
    let ssh = account.ssh(&[&to(&served.forward_port, origin.address)]);
    let (ca, url) = (account.up.ca.clone(), account.up.url(&served.host, "/trickle/20"));
    let download = thread::spawn(move || curl(&ca, &url, &[]));
    wait_until("the request to begin", || (origin.count() == 1).then_some(()));
    account.up.program.signal("TERM");
    let response = download.join().unwrap();
    assert_eq!((response.status, response.body.len()), (200, 100), "{}", response.head);
    assert!(!ssh.ended().success());
    assert!(ssh.output().contains("the edge is shutting down"), "{}", ssh.output());
    assert_eq!(account.up.program.ended().code(), Some(0), "{}", account.up.program.output());
}

#[test]
fn after_a_takeover_the_client_comes_back_to_the_same_host_key_and_no_request_fails() {
    let Some(account) = Account::new(&[]) else { return };
    let origin = Origin::start("origin");
    let served = Served::new(&account);
    // As `autossh`, or a unit with Restart=always.
    let forward = to(&served.forward_port, origin.address);
    let model = account.ssh_as(&account.user, "key", &[&forward]);
    let mut forever = std::process::Command::new("sh");
    forever.args(["-c", "while :; do ssh \"$@\"; sleep 0.1; done", "sh"]).args(model.get_args());
    forever.env_remove("SSH_AUTH_SOCK").stdin(std::process::Stdio::null());
    let client = Program::start(&mut forever);
    client.wait_for("is open");
    let load = Load::start(&account, &served.host);
    load.wait_for_more(5);
    let successor = account.home.up(&["--takeover"]);
    assert_eq!(successor.port, account.up.port);
    assert!(account.up.program.ended().success(), "{}", account.up.program.output());
    wait_until("the second login", || (client.output().matches("is open").count() == 2).then_some(()));
    assert!(client.output().contains("the edge is shutting down"), "{}", client.output());
    assert!(!client.output().contains("REMOTE HOST IDENTIFICATION"), "{}", client.output());
    load.wait_for_more(5);
    load.all_good();
}

/// This many connections from this address that send an ssh version, and then nothing.
async fn silent_clients(address: &str, port: u16, count: usize) -> Vec<tokio::net::TcpStream> {
    let mut silent = Vec::new();
    for _ in 0..count {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("{address}:0").parse().unwrap()).unwrap();
        let mut stream = socket.connect(([127, 0, 0, 1], port).into()).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"SSH-2.0-silent\r\n").await.unwrap();
        silent.push(stream);
    }
    silent
}

#[test]
fn idle_connections_do_not_exclude_clients() {
    // More than the bound on logins in all, and more than the bound of one address.
    const ADDRESSES: usize = 20;
    const OF_EACH: usize = 30;
    let Some(account) = Account::new(&[]) else { return };
    crate::harness::raise_open_files();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let port = account.up.port;
    let mut silent = Vec::new();
    for number in 0..ADDRESSES {
        silent.extend(runtime.block_on(silent_clients(&format!("127.0.3.{}", 1 + number), port, OF_EACH)));
    }
    silent.extend(runtime.block_on(silent_clients("127.0.4.1", port, 40)));
    let origin = Origin::start("origin");
    let (_, host, _) = account.socket("http");
    let label = host.split('.').next().unwrap();
    let ssh = account.ssh(&[&to(&format!("{label}:80"), origin.address)]);
    ssh.wait_for("is open");
    assert_eq!(account.up.curl(&host, "/", &[]).status, 200);
    let metrics = account.up.curl("api.localhost", "/metrics", &[]).body;
    let value = |name: &str| -> u64 {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name}")).trim().parse().unwrap()
    };
    assert!(value("sallyport_edge_ssh_logins_pushed_out_total") >= 100, "{metrics}");
    assert!(value("sallyport_edge_ssh_logins_pending") <= 512);
    drop(silent);
}
