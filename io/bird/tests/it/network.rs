//! Two networks with a wire between them, and a BIRD in each: the edge, and the world.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use ipnet::IpNet;
use sallyport_anycast::{
    bird::{EdgePart, Route, routes},
    model::{AnycastConfig, AnycastPrefix, Peer, Place},
};
use sallyport_bird::Bird;

/// How long a test waits for what must happen.
const LIMIT: Duration = Duration::from_secs(60);
const BETWEEN: Duration = Duration::from_millis(50);
pub(crate) const PREFIX4: &str = "198.51.100.0/24";
pub(crate) const PREFIX6: &str = "2001:db8:5::/48";

/// Whether BIRD and networks are there; says why not.
pub(crate) fn can_run() -> bool {
    let can_network = Command::new("unshare").args(["--net", "true"]).status().is_ok_and(|status| status.success());
    let has_bird = Command::new(bird()).arg("--version").output().is_ok();
    if !(can_network && has_bird) {
        println!("skipped: this test needs root, and Debian's packages bird2, util-linux and iproute2");
    }
    can_network && has_bird
}

pub(crate) fn bird() -> &'static str {
    if Path::new("/usr/sbin/bird").exists() { "/usr/sbin/bird" } else { "bird" }
}

fn ip(args: &[&str]) {
    let output = Command::new("ip").args(args).output().unwrap();
    assert!(output.status.success(), "ip {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A network with programs.
pub(crate) struct Side {
    pub(crate) namespace: String,
    folder: PathBuf,
    children: Vec<Child>,
}

impl Side {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("bird.ctl")
    }

    /// Starts a program, and returns its number within this side.
    pub(crate) fn start(&mut self, program: &str, args: &[&str]) -> usize {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace, program]).args(args);
        let log = fs::File::create(self.path(&format!("log-{}", self.children.len()))).unwrap();
        let errors = log.try_clone().unwrap();
        self.children.push(command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn().unwrap());
        self.children.len() - 1
    }

    /// Starts BIRD with this configuration.
    pub(crate) fn start_bird(&mut self, text: &str) -> usize {
        self.start_another_bird("bird", text)
    }

    /// Starts one more BIRD, with files of this name.
    pub(crate) fn start_another_bird(&mut self, name: &str, text: &str) -> usize {
        let (config, socket) = (self.path(&format!("{name}.conf")), self.path(&format!("{name}.ctl")));
        fs::write(&config, text).unwrap();
        self.start(bird(), &["-f", "-c", config.to_str().unwrap(), "-s", socket.to_str().unwrap()])
    }

    /// What a program has said so far.
    pub(crate) fn log(&self, program: usize) -> String {
        fs::read_to_string(self.path(&format!("log-{program}"))).unwrap()
    }

    /// Runs `ip` here, and returns what it says.
    pub(crate) fn ip(&self, args: &[&str]) -> String {
        let output = Command::new("ip").args(["-n", &self.namespace]).args(args).output().unwrap();
        assert!(output.status.success(), "ip {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub(crate) fn signal(&self, program: usize, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.children[program]);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for the end of a program.
    pub(crate) fn wait(&mut self, program: usize) {
        self.children[program].wait().unwrap();
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for number in 0..self.children.len() {
                eprintln!("{}, program {number}:\n{}", self.namespace, self.log(number));
            }
        }
        for child in &mut self.children {
            // One that was stopped ends by this too.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = Command::new("ip").args(["netns", "del", &self.namespace]).status();
    }
}

/// Both sides. The edge is 10.0.0.1 and fd00::1, the world 10.0.0.2 to .9 and fd00::2.
pub(crate) struct Network {
    pub(crate) edge: Side,
    pub(crate) world: Side,
    pub(crate) file: PathBuf,
    _folder: tempfile::TempDir,
}

impl Network {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = tempfile::tempdir().unwrap();
        let side = |name: &str| {
            let namespace = format!("sp-bird-{}-{number}-{name}", std::process::id());
            ip(&["netns", "add", &namespace]);
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            Side { namespace, folder: path, children: Vec::new() }
        };
        let (edge, world) = (side("edge"), side("world"));
        ip(&[
            "link",
            "add",
            "w0",
            "netns",
            &edge.namespace,
            "type",
            "veth",
            "peer",
            "name",
            "w0",
            "netns",
            &world.namespace,
        ]);
        for (side, hosts) in [(&edge, 1..=1), (&world, 2..=9)] {
            let inside = |args: &[&str]| ip(&[&["-n", &side.namespace], args].concat());
            inside(&["link", "set", "lo", "up"]);
            // Without it the link-local address is not there yet when BIRD looks.
            let script = "echo 0 >/proc/sys/net/ipv6/conf/w0/accept_dad";
            ip(&["netns", "exec", &side.namespace, "sh", "-c", script]);
            for host in hosts {
                inside(&["addr", "add", &format!("10.0.0.{host}/24"), "dev", "w0"]);
                inside(&["addr", "add", &format!("fd00::{host}/64"), "dev", "w0", "nodad"]);
            }
            inside(&["link", "set", "w0", "up"]);
        }
        let file = folder.path().join("edge/sallyport.conf");
        Self { edge, world, file, _folder: folder }
    }

    /// The file of the edge's operator, which brings BIRD's routes into the kernel.
    pub(crate) fn operator_file(&self) -> String {
        let kernel = "protocol kernel { ipv4 { export all; }; }\nprotocol kernel { ipv6 { export all; }; }\n";
        format!("log stderr all;\n{kernel}include \"{}\";\n", self.file.display())
    }

    /// Starts the BIRD of the edge, and that of the world with these neighbours.
    pub(crate) async fn start(&mut self, world: &str) -> (usize, usize) {
        sallyport_bird::ensure_file(&self.file).await.unwrap();
        let text = self.operator_file();
        let started = (self.edge.start_bird(&text), self.world.start_bird(world));
        self.edge_bird().await;
        self.world_bird().await;
        started
    }

    /// A client of the edge's BIRD, once it answers.
    pub(crate) async fn edge_bird(&self) -> Bird {
        answering(&self.edge.socket()).await
    }

    pub(crate) async fn world_bird(&self) -> Bird {
        answering(&self.world.socket()).await
    }
}

async fn answering(socket: &Path) -> Bird {
    let mut bird = Bird::new(socket);
    until("BIRD answers", async || bird.version().await.is_ok()).await;
    bird
}

/// Waits until something holds.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    let what = what.to_owned();
    async move {
        let start = Instant::now();
        while !is_so().await {
            assert!(start.elapsed() < LIMIT, "waited in vain until {what}");
            tokio::time::sleep(BETWEEN).await;
        }
    }
}

/// The routes of this prefix in the world's tables.
pub(crate) async fn heard(world: &mut Bird, net: &str) -> Vec<Route> {
    let net: IpNet = net.parse().unwrap();
    let reply = world.request("show route all").await.unwrap();
    routes(reply).unwrap().into_iter().filter(|route| route.net == net).collect()
}

/// A neighbour at this address, of AS 64501, to the edge's AS 64500.
pub(crate) fn peer(name: &str, address: &str) -> Peer {
    Peer {
        name: name.to_owned(),
        place: Place::Everywhere,
        address: address.parse().unwrap(),
        remote_as: 64501,
        local_as: 64500,
        role: None,
        password: None,
        hops: 1,
        bfd: None,
        max_prefixes: 10,
        communities: Vec::new(),
        drain_communities: Vec::new(),
        prepend: 0,
        is_no_export: false,
    }
}

/// The part of the edge with both prefixes and these neighbours. Nothing is announced.
pub(crate) fn part(peers: Vec<Peer>) -> EdgePart {
    let prefix = |net: &str, address: &str| AnycastPrefix {
        net: net.parse().unwrap(),
        addresses: vec![address.parse().unwrap()],
        regions: Vec::new(),
        // NO_EXPORT on the route itself: BIRD sends it on all the same.
        communities: vec!["64500:7".parse().unwrap(), "65535:65281".parse().unwrap()],
        min_sites: 1,
    };
    let prefixes = vec![prefix(PREFIX4, "198.51.100.1"), prefix(PREFIX6, "2001:db8:5::1")];
    let config = AnycastConfig { prefixes, peers, orders: Vec::new() };
    EdgePart::of(&config, &"edge-1".parse().unwrap(), Some(&"eu-west".parse().unwrap()), Ipv4Addr::new(192, 0, 2, 1))
}

/// Sets both prefixes.
pub(crate) fn set(part: &mut EdgePart, state: sallyport_anycast::model::Announcement) {
    for net in [PREFIX4, PREFIX6] {
        assert!(part.set(net.parse().unwrap(), state));
    }
}

/// What each BIRD of the world has. Sessions begin with the edge alone, so that no two connections cross.
pub(crate) const WORLD: &str = "log stderr all;\nrouter id 192.0.2.2;\nprotocol device { }\nprotocol bfd { }\n\
    template bgp edge { passive on; strict bind on; error wait time 1, 2; }\n";

/// A neighbour of the edge, in the world's words.
pub(crate) fn neighbour(name: &str, local: &str, more: &str) -> String {
    let (edge, family) = if local.contains(':') { ("fd00::1", 6) } else { ("10.0.0.1", 4) };
    format!(
        "protocol bgp {name} from edge {{ local {local} as 64501; neighbor {edge} as 64500; {more}\n\
         ipv{family} {{ import all; export all; }}; }}\n"
    )
}
