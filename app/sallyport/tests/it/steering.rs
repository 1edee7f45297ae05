//! Origins get what they can carry, and no more: one machine, and three regions over a real NATS.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream, UdpSocket},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    fleet::{Bus, ControlHere, DOMAIN, EdgeHere},
    harness::{Home, Program, text, wait_until},
    lab::until,
    mesh::service,
    tcp::{connect, free_ports, id, socket},
};

/// Reads the head of a request; false at the end of the connection.
fn reads_head(input: &mut BufReader<TcpStream>) -> bool {
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        if !input.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            return false;
        }
    }
    true
}

/// An origin that knows when each request came.
pub(crate) struct Counted {
    pub(crate) address: SocketAddr,
    times: Arc<Mutex<Vec<Instant>>>,
}

impl Counted {
    pub(crate) fn start() -> Self {
        let times = Arc::<Mutex<Vec<Instant>>>::default();
        let counted = times.clone();
        let address = service(move |stream: TcpStream| {
            let mut input = BufReader::new(stream.try_clone().unwrap());
            let mut out = stream;
            while reads_head(&mut input) {
                counted.lock().unwrap().push(Instant::now());
                if out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                    return;
                }
            }
        });
        Self { address, times }
    }

    /// The most requests in any second.
    pub(crate) fn peak(&self) -> usize {
        let times = self.times.lock().unwrap();
        let within = |at: usize| times[at..].partition_point(|time| *time < times[at] + Duration::from_secs(1));
        (0..times.len()).map(within).max().unwrap_or(0)
    }

    /// The requests since a moment.
    pub(crate) fn since(&self, moment: Instant) -> usize {
        self.times.lock().unwrap().iter().filter(|time| **time >= moment).count()
    }
}

/// Requests at steady rates.
pub(crate) struct Load {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Load {
    pub(crate) fn start(home: &Home, host: &str, phases: &Value) -> Self {
        Self::start_by(Command::new("python3"), &home.data().join("ca.pem"), host, phases)
    }

    /// As [`Self::start`], by another program that runs Python.
    pub(crate) fn start_by(mut python: Command, ca: &Path, host: &str, phases: &Value) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/clients/steering.py");
        python.arg(script).arg(ca).arg(host).arg(phases.to_string());
        let mut child = python.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Waits for the begin of the next phase.
    pub(crate) fn begins(&mut self) {
        let line = self.next();
        assert!(line["begins"].is_number(), "{line}");
    }

    /// Waits for the end of the phase, and returns the answers by status.
    pub(crate) fn ends(&mut self) -> Value {
        let line = self.next();
        assert!(line["ended"].is_number(), "{line}");
        line
    }

    /// Ends a phase without seconds.
    pub(crate) fn ended(&mut self) -> Value {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        self.ends()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// How many requests of a phase had another response than 200.
pub(crate) fn refused(ended: &Value) -> u64 {
    let statuses = ended["statuses"].as_object().unwrap();
    statuses.iter().filter(|(status, _)| *status != "200").map(|(_, count)| count.as_u64().unwrap()).sum()
}

/// All requests of a phase, but for those that a busy machine kept waiting for longer than an edge waits for a quota.
#[track_caller]
pub(crate) fn assert_served(ended: &Value, why: &str) {
    let all: u64 = ended["statuses"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
    assert!(refused(ended) * 50 <= all, "{why}: {ended}");
}

#[test]
fn a_machine_gives_each_origin_its_limit_and_refuses_the_rest() {
    let home = Home::new();
    let server = home.up(&["--direct-origins", "127.0.0.1"]);
    home.account();
    let (one, two) = (Counted::start(), Counted::start());
    let (socket, host) = home.socket(&[]);
    let add = |origin: &Counted, more: &[&str]| {
        let address = origin.address.to_string();
        home.json(&[&["socket", "origin", "add", socket.as_str(), address.as_str()], more].concat())
    };
    let plan = home.run(&["socket", "plan", &socket]);
    assert!(text(&plan.stderr).contains("so nothing is planned"), "{}", text(&plan.stderr));
    for bad in ["0", "-5", "NaN", "1e9", "1000000000", "1.5", ""] {
        let address = one.address.to_string();
        let refused = home.run(&["socket", "origin", "add", &socket, &address, &format!("--max-rps={bad}")]);
        assert!(
            !refused.status.success() && text(&refused.stderr).contains("auto"),
            "{bad}: {}",
            text(&refused.stderr)
        );
    }
    let made = add(&one, &["--max-rps", "40"]);
    assert_eq!(made["capacity"], json!({ "max_rps": 40 }));
    add(&two, &["--max-rps", "20"]);

    let edge = format!("127.0.0.1:{}", server.port);
    let phases = json!([{ "seconds": 3, "rps": { &edge: 45 } }, { "seconds": 6, "rps": { &edge: 120 } }]);
    let mut load = Load::start(&home, &host, &phases);
    load.begins();
    let fits = load.ends();
    assert_served(&fits, "the quotas suffice");
    load.begins();
    let over = load.ends();
    assert!(refused(&over) >= 200, "{over}");
    assert!(one.peak() <= 42 + 1 && two.peak() <= 21 + 1, "{} {}", one.peak(), two.peak());

    let mut crowd = Load::start(&home, &host, &json!([{ "seconds": 60, "rps": { &edge: 200 } }]));
    crowd.begins();
    wait_until("the plan in words", || {
        let words = home.json(&["socket", "plan", &socket])["words"].to_string();
        (words.contains("is at 40 of 40 rps") && words.contains("refuses")).then_some(())
    });
    let preview = home.json(&["socket", "plan", &socket, "--dry-run", "--demand", "edge=50"]);
    let planned: f64 =
        preview["origins"].as_array().unwrap().iter().map(|one| one["planned_rps"].as_f64().unwrap()).sum();
    assert!(preview["is_preview"] == true && (planned - 50.0).abs() < 0.1, "{preview}");
    let unknown = home.run(&["socket", "plan", &socket, "--dry-run", "--demand", "mars-1=50"]);
    assert!(text(&unknown.stderr).contains("there is no edge mars-1"), "{}", text(&unknown.stderr));
    let drawing = home.dir.path().join("plan.svg");
    home.json(&["socket", "plan", &socket, "--svg", drawing.to_str().unwrap()]);
    assert!(std::fs::read_to_string(drawing).unwrap().contains("<polyline"));

    // A refused client is told when to come back, and why.
    wait_until("a refusal", || {
        let response = server.curl(&host, "/", &[]);
        (response.status == 503 && response.body.contains("over-capacity"))
            .then(|| assert_eq!(response.header("retry-after"), Some("1")))
    });
    drop(crowd);

    // Without limits everything goes through again.
    for origin in [&one, &two] {
        let address = origin.address.to_string();
        home.json(&["socket", "origin", "edit", &socket, &address, "--max-rps", "off"]);
    }
    let mut load = Load::start(&home, &host, &json!([{ "seconds": 2, "rps": { &edge: 120 } }]));
    load.begins();
    let free = load.ends();
    assert_served(&free, "the quotas suffice");
}

#[test]
fn no_region_gets_more_than_it_can_carry_also_without_control_and_bus() {
    let home = Home::new();
    let Some(mut bus) = Bus::start(&home, "") else { return };
    let dial = ["--direct-origins", "127.0.0.1"];
    let mut control = ControlHere::start_with(&home, &bus, &dial);
    home.account();
    let names = [("eu-1", "eu"), ("us-1", "us"), ("asia-1", "asia")];
    let edges = names.map(|(name, region)| EdgeHere::join_with(&home, name, region, "127.0.0.1", &dial));
    let origins = names.map(|_| Counted::start());
    let (socket, host) = home.socket(&[]);
    for ((_, region), origin) in names.iter().zip(&origins) {
        let address = origin.address.to_string();
        home.json(&["socket", "origin", "add", &socket, &address, "--region", region, "--max-rps", "100"]);
    }
    wait_until("all edges serve the socket", || {
        edges.iter().all(|edge| edge.get(&home, &host, "/").0 == 200).then_some(())
    });
    let at = |edge: &EdgeHere| format!("127.0.0.1:{}", edge.port);
    let rates = |eu: u64, us: u64, asia: u64| json!({ at(&edges[0]): eu, at(&edges[1]): us, at(&edges[2]): asia });
    let phases = json!([
        { "seconds": 6, "rps": rates(60, 40, 20) },
        { "seconds": 8, "rps": rates(170, 40, 20) },
        { "seconds": 14, "rps": rates(170, 40, 20) },
        { "seconds": 12, "rps": rates(20, 170, 40) },
    ]);
    let mut load = Load::start(&home, &host, &phases);
    load.begins();
    let calm = load.ends();
    assert_served(&calm, "the quotas suffice");
    load.begins();
    let crowd = load.ends();
    assert_served(&crowd, "all regions together can carry it");
    // In the middle of the crowd, nobody plans any more.
    load.begins();
    wait_until("the plan in words", || {
        let words = home.json(&["socket", "plan", &socket])["words"].to_string();
        (words.contains("of eu-1 goes to us") || words.contains("of eu-1 goes to asia")).then_some(())
    });
    control.program = None;
    bus.kill();
    let alone = load.ends();
    assert_served(&alone, "the quotas stay");
    bus.resume();
    control.resume(&home);
    load.begins();
    let moved_at = Instant::now();
    let moved = load.ends();
    for ((_, region), origin) in names.iter().zip(&origins) {
        assert!(origin.peak() <= 105, "{region} got {} in one second", origin.peak());
    }
    // The crowd has moved to another region. What does not fit there goes on once control is back.
    assert!(refused(&moved) <= 170 * 6, "{moved}");
    assert!(origins[1].since(moved_at) >= 900 && origins[2].since(moved_at) >= 300, "{moved}");
    let mut rest = String::new();
    load.lines.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}

/// Echoes connections.
fn echo() -> SocketAddr {
    service(|stream: TcpStream| drop(std::io::copy(&mut &stream, &mut &stream)))
}

/// Whether the connection echoes; false if it is reset.
fn echoes(stream: &mut TcpStream) -> bool {
    let mut answer = [0; 4];
    stream.write_all(b"ping").is_ok() && stream.read_exact(&mut answer).is_ok()
}

#[test]
fn connections_and_flows_are_bounded_at_their_origin() {
    let home = Home::new();
    let ports = free_ports(2);
    let range = format!("{}-{}", ports.start(), ports.end());
    let server = home.up(&["--direct-origins", "127.0.0.1", "--port-range", &range]);
    home.account();
    let tcp = socket(&home, "tcp", &[]);
    let port = u16::try_from(tcp["port"].as_u64().unwrap()).unwrap();
    let origin = echo().to_string();
    home.json(&["socket", "origin", "add", id(&tcp), &origin, "--max-connections", "2"]);
    let mut open: Vec<_> = (0..2).map(|_| connect(port)).collect();
    assert!(open.iter_mut().all(echoes), "two connections are served");
    let began = Instant::now();
    let mut third = connect(port);
    assert!(!echoes(&mut third) && began.elapsed() < Duration::from_secs(5), "the third one is reset after a second");
    open.pop();
    wait_until("a place is free again", || echoes(&mut connect(port)).then_some(()));
    let plan = home.json(&["socket", "plan", id(&tcp)]);
    assert_eq!(plan["origins"][0]["max_connections"], 2);

    let echo = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = echo.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut bytes = [0; 1_500];
        while let Ok((count, from)) = echo.recv_from(&mut bytes) {
            drop(echo.send_to(&bytes[..count], from));
        }
    });
    let udp = socket(&home, "udp", &[]);
    let port = u16::try_from(udp["port"].as_u64().unwrap()).unwrap();
    home.json(&["socket", "origin", "add", id(&udp), &address, "--max-connections", "1"]);
    let client = || {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(("127.0.0.1", port)).unwrap();
        client.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        client
    };
    let asks = |client: &UdpSocket| client.send(b"ping").is_ok() && client.recv(&mut [0; 16]).is_ok();
    let first = client();
    wait_until("the first flow is answered", || asks(&first).then_some(()));
    let second = client();
    assert!((0..3).all(|_| !asks(&second)) && asks(&first), "a second flow gets no answer, and the first one goes on");
    let metrics = server.curl("api.localhost", "/metrics", &[]).body;
    for transport in ["tcp", "udp"] {
        let line = metrics.lines().find(|line| {
            line.starts_with("sallyport_edge_flows_total") && line.contains("over-capacity") && line.contains(transport)
        });
        assert!(line.is_some(), "{transport}");
    }
}

#[test]
fn an_edge_that_starts_again_without_control_continues_with_its_quotas() {
    let home = Home::new();
    let Some(mut bus) = Bus::start(&home, "") else { return };
    let dial = ["--direct-origins", "127.0.0.1"];
    let mut control = ControlHere::start_with(&home, &bus, &dial);
    home.account();
    let mut edge = EdgeHere::join_with(&home, "eu-1", "eu", "127.0.0.1", &dial);
    let origin = Counted::start();
    let (socket, host) = home.socket(&[]);
    home.json(&["socket", "origin", "add", &socket, &origin.address.to_string(), "--max-rps", "30"]);
    wait_until("the edge serves the socket", || (edge.get(&home, &host, "/").0 == 200).then_some(()));
    for file in ["quotas.json", "config.snapshot"] {
        wait_until("what the edge knows is on its disk", || {
            let text = std::fs::read_to_string(edge.data.join(file)).unwrap_or_default();
            (text.contains(&socket) && text.contains("30")).then_some(())
        });
    }
    control.program = None;
    bus.kill();
    edge.kill();
    edge.start(&home, &dial);
    let at = format!("127.0.0.1:{}", edge.port);
    let mut load = Load::start(
        &home,
        &host,
        &json!([{ "seconds": 14, "rps": { &at: 20 } }, { "seconds": 3, "rps": { &at: 90 } }]),
    );
    load.begins();
    let fits = load.ends();
    assert_served(&fits, "a lone edge is its own majority");
    load.begins();
    let over = load.ends();
    assert!(refused(&over) > 60 && origin.peak() <= 33, "{over} {}", origin.peak());
    let (_, health) = edge.get(&home, &format!("api.{DOMAIN}"), "/healthz");
    assert!(health.contains("steering: no control has assigned quotas for"), "{health}");
}

/// Over how long an origin measures what it carries.
const CARRIED_SPAN: Duration = Duration::from_secs(3);

/// An origin that serves one request after the other, at a pace.
struct OneByOne {
    address: SocketAddr,
    pace_us: Arc<AtomicU64>,
    answered: Arc<Mutex<Vec<Instant>>>,
}

impl OneByOne {
    fn start(pace: Duration) -> Self {
        let (requests, waiting) = mpsc::channel::<(Instant, mpsc::Sender<()>)>();
        let address = service(move |stream: TcpStream| {
            let mut input = BufReader::new(stream.try_clone().unwrap());
            let mut out = stream;
            while reads_head(&mut input) {
                let (done, turn) = mpsc::channel();
                if requests.send((Instant::now(), done)).is_err() || turn.recv().is_err() {
                    return;
                }
                if out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                    return;
                }
            }
        });
        let this = Self { address, pace_us: Arc::default(), answered: Arc::default() };
        this.set_pace(pace);
        let (pace_us, answered) = (this.pace_us.clone(), this.answered.clone());
        std::thread::spawn(move || {
            // Each request is due one pace after the one before it, so that a thread that woke late catches up.
            let mut due = Instant::now();
            for (came, done) in waiting {
                due = due.max(came) + Duration::from_micros(pace_us.load(Ordering::Relaxed));
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                answered.lock().unwrap().push(Instant::now());
                let _ = done.send(());
            }
        });
        this
    }

    fn set_pace(&self, pace: Duration) {
        self.pace_us.store(u64::try_from(pace.as_micros()).unwrap(), Ordering::Relaxed);
    }

    /// What the origin could carry since a moment: its answers per second in the three seconds with the most of them.
    /// `None` before these are over.
    fn carried(&self, since: Instant) -> Option<f64> {
        if since.elapsed() < 2 * CARRIED_SPAN {
            return None;
        }
        let answered = self.answered.lock().unwrap();
        let answered = &answered[answered.partition_point(|time| *time < since)..];
        let within = |at: usize| answered[at..].partition_point(|time| *time < answered[at] + CARRIED_SPAN);
        let most = (0..answered.len()).map(within).max().unwrap_or_default();
        Some(most as f64 / CARRIED_SPAN.as_secs_f64())
    }
}

#[test]
fn what_an_origin_can_carry_is_learned_and_followed() {
    let home = Home::new();
    let server = home.up(&["--direct-origins", "127.0.0.1"]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = OneByOne::start(Duration::from_millis(20));
    home.json(&["socket", "origin", "add", &socket, &origin.address.to_string(), "--max-rps", "auto"]);
    let at = format!("127.0.0.1:{}", server.port);
    let phases = json!([{ "seconds": 4, "rps": { &at: 30 } }, { "seconds": 200, "rps": { &at: 80 } }]);
    let mut load = Load::start(&home, &host, &phases);
    load.begins();
    let keeps_up = load.ends();
    assert_served(&keeps_up, "an origin that keeps up has no bound");
    load.begins();
    // The plan uses 95 % of what is learned, which is within a tenth of what the origin carries.
    let is_learned = |since: Instant| {
        let carried = origin.carried(since)?;
        let plan = home.json(&["socket", "plan", &socket]);
        let learned = plan["origins"][0]["max_rps"].as_f64()? / 0.95;
        println!("{learned:.1} requests per second are learned, and {carried:.1} were carried");
        (0.9 * carried..=1.1 * carried).contains(&learned).then_some(carried)
    };
    let began = Instant::now();
    let knee = until("the knee is known", || is_learned(began));
    origin.set_pace(Duration::from_millis(40));
    let halved_at = Instant::now();
    let half = until("a halved origin is followed within a minute", || is_learned(halved_at));
    assert!(half < 0.7 * knee, "the origin carries half: {half} after {knee}");
}

#[test]
fn a_client_returns_to_its_origin_within_limits_too() {
    let home = Home::new();
    let server = home.up(&["--direct-origins", "127.0.0.1"]);
    home.account();
    let origins = [Counted::start(), Counted::start()];
    let (socket, host) = home.socket(&["--affinity", "cookie"]);
    for origin in &origins {
        home.json(&["socket", "origin", "add", &socket, &origin.address.to_string(), "--max-rps", "100"]);
    }
    let first = server.curl(&host, "/", &[]);
    let cookie = first.header("set-cookie").and_then(|cookie| cookie.split(';').next()).unwrap().to_owned();
    let began = Instant::now();
    for _ in 0..12 {
        let response = server.curl(&host, "/", &["--cookie", &cookie]);
        assert_eq!((response.status, response.header("set-cookie")), (200, None));
    }
    let mut counts = origins.map(|origin| origin.since(began));
    counts.sort_unstable();
    assert_eq!(counts, [0, 12]);
}

#[test]
fn a_service_brings_its_limits_along() {
    let home = Home::new();
    let server = home.up(&[]);
    home.account();
    let origin = Counted::start();
    let port = origin.address.port().to_string();
    let limits = ["--max-rps", "20", "--origin-max-connections", "50"];
    let args = ["connect", &port, "--host", "127.0.0.1", "--name", "shop", "-o", "json"];
    let connect = Program::start(&mut home.command(&[&args[..], &limits].concat()));
    connect.wait_for("attached");
    let capacities = |socket: &str| {
        let tunnels = home.json(&["tunnel", "ls", socket]);
        tunnels.as_array().unwrap().iter().map(|tunnel| tunnel["capacity"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(capacities("shop"), [json!({ "max_rps": 20, "max_connections": 50 })]);
    let host = home.json(&["socket", "show", "shop"])["dns_name"].as_str().unwrap().to_owned();
    let at = format!("127.0.0.1:{}", server.port);
    let mut load = Load::start(&home, &host, &json!([{ "seconds": 5, "rps": { &at: 60 } }]));
    load.begins();
    let over = load.ends();
    assert!(refused(&over) > 60 && origin.peak() <= 22, "{over} {}", origin.peak());

    let (socket, _) = home.socket(&[]);
    let file = home.dir.path().join("services.toml");
    let service = format!("[[service]]\nsocket-id = \"{socket}\"\nport = {port}\nhost = \"127.0.0.1\"\n");
    std::fs::write(&file, service + "max-rps = \"auto\"\nshared-capacity = \"db\"\n").unwrap();
    let run = Program::start(&mut home.command(&["run", file.to_str().unwrap(), "-o", "json"]));
    run.wait_for("attached");
    assert_eq!(capacities(&socket), [json!({ "max_rps": "auto", "shared": "db" })]);
    let tunnel = home.json(&["tunnel", "ls", &socket])[0]["id"].as_str().unwrap().to_owned();
    let again = ["tunnel", "connect", &socket, &port, "--tunnel-id", &tunnel, "--max-rps", "5"];
    let refused = home.run(&again);
    assert_eq!(refused.status.code(), Some(2));
    let printed = text(&refused.stderr);
    assert!(printed.contains("has its limits already") && printed.contains("tunnel edit"), "{printed}");
}
