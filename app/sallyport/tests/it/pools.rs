//! Services at several addresses, behind a real edge.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use sallyport_connector::{
    ALPN, ClientAffinity, Connector, ConnectorEvent, ConnectorOptions, Endpoint, OriginPool, Service, Transport,
    TransportChoice, TunnelCredential,
};
use sallyport_model::OriginAddr;
use sallyport_net::{Outbound, Shutdown, Trust, client_config};
use serde_json::Value;

use crate::harness::{Home, Origin, PATIENCE, Program, Up, curl, wait_until};

const HOSTS: [&str; 3] = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];

/// The statuses of so many requests of one client, which keeps its connection.
fn statuses(up: &Up, host: &str, count: usize, more: &[&str]) -> Vec<String> {
    let url = up.url(host, &format!("/[1-{count}]"));
    // Each response is followed by the status, which the last line has for the last one.
    let response = curl(&up.ca, &url, &[&["--http1.1", "-w", "\nstatus %{http_code}\n%{http_code}"], more].concat());
    response.body.lines().filter_map(|line| line.strip_prefix("status ")).map(str::to_owned).collect()
}

fn counts<const N: usize>(origins: &[Origin; N]) -> [usize; N] {
    origins.each_ref().map(Origin::count)
}

#[test]
fn sixty_requests_of_one_connection_are_twenty_for_each_of_three_hosts() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let origins = Origin::start_at_hosts(HOSTS);
    let port = origins[0].address.port().to_string();
    let (socket, host) = home.socket(&[]);
    let args = ["tunnel", "connect", "--socket-id", &socket, "--port", &port, "-o", "json"];
    let hosts = HOSTS.iter().flat_map(|host| ["--host", host]).collect::<Vec<_>>();
    let connector = Program::start(&mut home.command(&[&args[..], &hosts].concat()));
    connector.wait_for("attached");
    assert_eq!(statuses(&up, &host, 60, &[]), vec!["200"; 60]);
    assert_eq!(counts(&origins), [20; 3]);
    // A request that must not be repeated gets a stream of its own too.
    assert_eq!(statuses(&up, &host, 30, &["-d", "a body"]), vec!["200"; 30]);
    assert_eq!(counts(&origins), [30; 3]);
    assert_eq!(connector.stop().code(), Some(0), "{}", connector.output());
}

#[test]
fn a_host_where_nothing_listens_is_left_out() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let origins = Origin::start_at_hosts(["127.0.0.1", "127.0.0.2"]);
    let port = origins[0].address.port();
    let file = home.dir.path().join("services.toml");
    let hosts = r#"["127.0.0.1", "127.0.0.9", "127.0.0.2"]"#;
    std::fs::write(&file, format!("[[service]]\nname = \"shop\"\nport = {port}\nhost = {hosts}\n")).unwrap();
    let run = Program::start(&mut home.command(&["run", file.to_str().unwrap(), "-o", "json"]));
    run.wait_for("attached");
    let sockets = home.json(&["socket", "ls"]);
    let host = sockets[0]["dns_name"].as_str().unwrap();
    assert_eq!(statuses(&up, host, 40, &[]), vec!["200"; 40]);
    let counted = counts(&origins);
    assert_eq!(counted.iter().sum::<usize>(), 40);
    // The turn of the third host goes to the next one, until that host rests.
    assert!(counted.iter().all(|count| (15..=25).contains(count)), "{counted:?}");
    assert_eq!(run.stop().code(), Some(0), "{}", run.output());
    let output = home.run(&["connect", "http://127.0.0.1:1", "--host", "127.0.0.2"]);
    assert_eq!(output.status.code(), Some(2), "an address with a host takes no other hosts");
}

/// A connector of this process for the socket.
struct Embedded {
    pool: OriginPool,
    events: tokio::sync::mpsc::Receiver<ConnectorEvent>,
    shutdown: Shutdown,
    task: tokio::task::JoinHandle<anyhow::Result<()>>,
}

fn ready(origins: &[&Origin]) -> Vec<Endpoint> {
    let address = |origin: &&Origin| OriginAddr { host: origin.address.ip().to_string(), port: origin.address.port() };
    origins.iter().map(address).map(Endpoint::ready).collect()
}

impl Embedded {
    async fn start(up: &Up, tunnel: &Value, endpoints: Vec<Endpoint>) -> Self {
        let pool = OriginPool::new(endpoints, &ClientAffinity::None).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let service = Service {
            tunnel: TunnelCredential {
                tunnel: text(&tunnel["id"]).parse().unwrap(),
                credential: text(&tunnel["credential"]),
                request_log: false,
                origin: None,
                spreads: false,
            },
            origin: pool.clone().into(),
            origin_tls: None,
            connect_timeout: Duration::from_secs(10),
        };
        let options = ConnectorOptions {
            agent: "test/1".to_owned(),
            edge_host: text(&tunnel["connect"]["host"]),
            edge_port: tunnel["connect"]["port"].as_u64().unwrap().try_into().unwrap(),
            quic_port: None,
            tls: client_config(&Trust::Ca(up.ca.clone()), &[ALPN]).unwrap(),
            transport: TransportChoice::Only(Transport::Tcp),
            links: None,
            outbound: Outbound::default(),
            services: vec![service],
            redundancy: 1,
            region: None,
            edges: Vec::new(),
            max_legs: 64,
            keepalive: Duration::from_secs(10),
            drain: Duration::from_secs(10),
            shards: Default::default(),
            capture: None,
        };
        let (events_in, mut events) = tokio::sync::mpsc::channel(1_024);
        let shutdown = Shutdown::new();
        let connector = Connector::new(options, events_in).unwrap();
        let task = tokio::spawn(connector.run(shutdown.clone()));
        while !matches!(events.recv().await.unwrap(), ConnectorEvent::Attached { .. }) {}
        Self { pool, events, shutdown, task }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_is_replaced_under_load_without_a_failed_request() {
    let home = Home::new();
    let up = Arc::new(home.up(&[]));
    home.account();
    let origins = Origin::start_at_hosts(["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"]);
    let (socket, host) = home.socket(&[]);
    let tunnel = home.json(&["tunnel", "create", &socket]);
    let [a, b, c, d] = &origins;
    let mut embedded = Embedded::start(&up, &tunnel, ready(&[a, b, c])).await;

    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (up, host, is_over) = (up.clone(), host.clone(), is_over.clone());
            thread::spawn(move || {
                let mut all = Vec::new();
                while !is_over.load(Ordering::SeqCst) {
                    all.extend(statuses(&up, &host, 50, &[]));
                }
                all
            })
        })
        .collect();
    let pools: [&[&Origin]; 4] = [&[a, b], &[b, c, d], &[d], &[a, c, d]];
    let mut replaced = 0;
    let began = Instant::now();
    while counts(&origins).iter().sum::<usize>() < 2_000 {
        assert!(began.elapsed() < PATIENCE, "{:?} of 2,000 requests", counts(&origins));
        embedded.pool.replace(ready(pools[replaced % pools.len()]), &ClientAffinity::None).unwrap();
        replaced += 1;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    is_over.store(true, Ordering::SeqCst);
    let all: Vec<_> = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
    let failed = all.iter().filter(|status| *status != "200").count();
    println!("{} requests, the pool replaced {replaced} times", all.len());
    assert_eq!((failed, all.len()), (0, counts(&origins).iter().sum()));
    assert!(counts(&origins).iter().all(|count| *count > 0), "{:?}", counts(&origins));
    let again = std::iter::from_fn(|| embedded.events.try_recv().ok());
    assert_eq!(again.filter(|event| matches!(event, ConnectorEvent::Attached { .. })).count(), 0);

    // The last ones are gone: one sentence at once, and the first that comes serves.
    embedded.pool.replace(Vec::new(), &ClientAffinity::None).unwrap();
    let response = up.curl(&host, "/", &["-H", "accept: application/json"]);
    assert_eq!(response.status, 502);
    assert!(response.body.contains("origin-refused"), "{}", response.body);
    embedded.pool.replace(ready(&[b]), &ClientAffinity::None).unwrap();
    let served =
        wait_until("the new endpoint", || Some(up.curl(&host, "/", &[])).filter(|response| response.status == 200));
    assert!(served.body.starts_with("127.0.0.2 GET /"), "{}", served.body);
    embedded.shutdown.trigger();
    embedded.task.await.unwrap().unwrap();
}
