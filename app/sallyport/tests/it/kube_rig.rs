//! A Kubernetes API server, pods, and `sallyport kube` beside `sallyport up`, all in one network namespace.
//!
//! One API server serves all tests of this program, each in a Kubernetes namespace of its own. It ends with its input,
//! which closes when the tests end.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Output, Stdio},
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};

use crate::harness::{Home, Program, text, wait_until};

/// The port of every pod.
pub(crate) const POD_PORT: u16 = 8080;

/// The one API server.
pub(crate) struct Cluster {
    network: String,
    folder: PathBuf,
    control: Mutex<(ChildStdin, mpsc::Receiver<String>)>,
    _child: Child,
}

/// The API server; `None`, with the reason printed, where there can be none.
pub(crate) fn cluster() -> Option<&'static Cluster> {
    static CLUSTER: OnceLock<Option<Cluster>> = OnceLock::new();
    told(CLUSTER.get_or_init(|| Cluster::start("")).as_ref())
}

/// An API server of a test alone, with this mark in the name of its network.
pub(crate) fn cluster_of_its_own(mark: &str) -> Option<&'static Cluster> {
    told(Cluster::start(mark).map(|cluster| &*Box::leak(Box::new(cluster))))
}

fn told(cluster: Option<&'static Cluster>) -> Option<&'static Cluster> {
    if cluster.is_none() {
        assert!(std::env::var_os("CI").is_none(), "a Kubernetes API server must be there in CI");
        println!("skipped: a Kubernetes API server needs root and Debian's packages `etcd-server` and `iproute2`");
    }
    cluster
}

impl Cluster {
    fn start(mark: &str) -> Option<Self> {
        let is_root = rustix::process::geteuid().is_root();
        let has_etcd = Command::new("sh").args(["-c", "command -v etcd kubectl ip"]).output();
        if !is_root || !has_etcd.is_ok_and(|output| output.status.success()) {
            return None;
        }
        let network = format!("sallyport-kube-{mark}{}", std::process::id());
        let folder = std::env::temp_dir().join(&network);
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/kubernetes");
        let mut child = Command::new(script)
            .arg(&folder)
            .arg(&network)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (said, answers) = mpsc::channel();
        let output = child.stdout.take().unwrap();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = said.send(line);
            }
        });
        // The tools may have to be built first.
        let ready = answers.recv_timeout(Duration::from_secs(1_200));
        assert_eq!(ready.as_deref(), Ok("ready"), "the API server did not start");
        let control = Mutex::new((child.stdin.take().unwrap(), answers));
        Some(Self { network, folder, control, _child: child })
    }

    /// Has the rig do something, such as `pause api`.
    pub(crate) fn tell(&self, line: &str) {
        let (input, answers) = &mut *self.control.lock().unwrap();
        writeln!(input, "{line}").unwrap();
        let answer = answers.recv_timeout(Duration::from_secs(180));
        assert_eq!(answer.as_deref(), Ok("done"), "{line}");
    }

    /// The file that names the API server.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// A program in the network of the cluster.
    pub(crate) fn inside(&self, home: &Home, program: &str, args: &[&str]) -> Command {
        let mut command = home.program("ip");
        command.args(["netns", "exec", &self.network, program]).args(args);
        command
    }

    /// A kubectl that must work.
    #[track_caller]
    pub(crate) fn kubectl(&self, home: &Home, args: &[&str], input: Option<&str>) -> String {
        let output = self.try_kubectl(home, args, input);
        assert!(output.status.success(), "kubectl {args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    pub(crate) fn try_kubectl(&self, home: &Home, args: &[&str], input: Option<&str>) -> Output {
        let kubeconfig = self.kubeconfig();
        let mut command = self.inside(home, "kubectl", &["--kubeconfig", kubeconfig.to_str().unwrap()]);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.unwrap_or_default().as_bytes()).unwrap();
        drop(stdin);
        child.wait_with_output().unwrap()
    }

    /// Runs this in a thread within the network of the cluster.
    fn thread_inside(&self, run: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
        let path = Path::new("/var/run/netns").join(&self.network);
        thread::spawn(move || {
            let network = File::open(path).unwrap();
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            run();
        })
    }
}

/// A pod: a web server on an address of its own, which answers with that address.
pub(crate) struct Pod {
    /// Its address.
    pub(crate) address: SocketAddr,
    requests: Arc<AtomicUsize>,
    is_gone: Arc<AtomicBool>,
    cluster: &'static Cluster,
}

impl Pod {
    /// Starts a pod on an address that no other test has.
    pub(crate) fn start(cluster: &'static Cluster) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(257);
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let address: SocketAddr = format!("10.244.{}.{}:{POD_PORT}", number / 256, number % 256).parse().unwrap();
        let (requests, is_gone) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (counter, gone) = (requests.clone(), is_gone.clone());
        let (bound, is_bound) = mpsc::channel();
        cluster.thread_inside(move || {
            let listener = TcpListener::bind(address).unwrap();
            bound.send(()).unwrap();
            for stream in listener.incoming().map_while(Result::ok) {
                if gone.load(Ordering::SeqCst) {
                    return;
                }
                let (counter, gone) = (counter.clone(), gone.clone());
                thread::spawn(move || drop(serve_pod(&stream, address, &counter, &gone)));
            }
        });
        is_bound.recv().unwrap();
        Self { address, requests, is_gone, cluster }
    }

    /// How many requests it has got.
    pub(crate) fn count(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// Ends it: from now on connections are refused, and those that are open end after their request.
    pub(crate) fn stop(&self) {
        if !self.is_gone.swap(true, Ordering::SeqCst) {
            let address = self.address;
            // The thread that accepts sees it at the next connection.
            let poke = self.cluster.thread_inside(move || drop(TcpStream::connect(address)));
            poke.join().unwrap();
        }
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.stop();
        }
    }
}

/// Serves at every address of a pod, so that each pod that is made without a process answers.
pub(crate) fn serve_every_pod(cluster: &'static Cluster) {
    let (bound, is_bound) = mpsc::channel();
    cluster.thread_inside(move || {
        let listener = TcpListener::bind(("0.0.0.0", POD_PORT)).unwrap();
        bound.send(()).unwrap();
        for stream in listener.incoming().map_while(Result::ok) {
            let Ok(address) = stream.local_addr() else { continue };
            thread::spawn(move || drop(serve_pod(&stream, address, &AtomicUsize::new(0), &AtomicBool::new(false))));
        }
    });
    is_bound.recv().unwrap();
}

fn serve_pod(
    stream: &TcpStream,
    address: SocketAddr,
    requests: &AtomicUsize,
    is_gone: &AtomicBool,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    let (mut reader, mut writer) = (stream.try_clone()?, stream);
    let (mut head, mut buffer) = (Vec::new(), [0; 4_096]);
    loop {
        while !head.windows(4).any(|four| four == b"\r\n\r\n") {
            match reader.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => head.extend_from_slice(&buffer[..count]),
                Err(_) if is_gone.load(Ordering::SeqCst) && head.is_empty() => return stream.shutdown(Shutdown::Both),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        requests.fetch_add(1, Ordering::SeqCst);
        let line = text(&head).lines().next().unwrap_or_default().to_owned();
        if let Some(wait) = line.split_whitespace().nth(1).and_then(|path| path.strip_prefix("/slow/")) {
            thread::sleep(Duration::from_millis(wait.parse().unwrap_or(0)));
        }
        head.clear();
        let body = format!("{}\n", address.ip());
        let last = if is_gone.load(Ordering::SeqCst) { "Connection: close\r\n" } else { "" };
        write!(writer, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{last}\r\n{body}", body.len())?;
        if !last.is_empty() {
            return stream.shutdown(Shutdown::Write);
        }
    }
}

/// Who uses the API server: tests together, or one alone.
static USERS: RwLock<()> = RwLock::new(());

/// A test's share of the API server.
enum Share {
    Common {
        _guard: RwLockReadGuard<'static, ()>,
    },
    Alone {
        _guard: RwLockWriteGuard<'static, ()>,
    },
    /// The server is the test's own.
    Whole,
}

/// What one test has: a namespace, `sallyport up`, a token, and any number of replicas.
pub(crate) struct Stage {
    pub(crate) cluster: &'static Cluster,
    pub(crate) home: Home,
    pub(crate) namespace: String,
    pub(crate) up: Program,
    pub(crate) port: u16,
    pub(crate) ca: PathBuf,
    pub(crate) token_file: PathBuf,
    _share: Share,
}

impl Stage {
    /// A stage of this name; `None`, with the reason printed, where there can be none.
    pub(crate) fn new(name: &str) -> Option<Self> {
        let cluster = cluster()?;
        let guard = USERS.read().unwrap_or_else(PoisonError::into_inner);
        Some(Self::at(cluster, name, Share::Common { _guard: guard }))
    }

    /// A stage with the API server for itself, which it may pause and empty.
    pub(crate) fn alone(name: &str) -> Option<Self> {
        let cluster = cluster()?;
        let guard = USERS.write().unwrap_or_else(PoisonError::into_inner);
        Some(Self::at(cluster, name, Share::Alone { _guard: guard }))
    }

    /// A stage at an API server of the test's own.
    pub(crate) fn on(cluster: &'static Cluster, name: &str) -> Self {
        Self::at(cluster, name, Share::Whole)
    }

    fn at(cluster: &'static Cluster, name: &str, share: Share) -> Self {
        let home = Home::new();
        let data = home.data();
        let mut args = vec!["up", "--listen-http", "127.0.0.1:0", "--listen", "127.0.0.1:0"];
        args.extend(["--data", data.to_str().unwrap()]);
        let up = Program::start(&mut cluster.inside(&home, env!("CARGO_BIN_EXE_sallyport"), &args));
        up.wait_for("ready");
        let note = std::fs::read(home.dir.path().join("state/local.json")).unwrap();
        let note: Value = serde_json::from_slice(&note).unwrap();
        let port = note["api"].as_str().unwrap().rsplit_once(':').unwrap().1.parse().unwrap();
        let ca = note["ca"].as_str().unwrap().into();
        let token_file = home.dir.path().join("token");
        let stage = Self { cluster, namespace: name.to_owned(), up, port, ca, token_file, home, _share: share };
        stage.sallyport(&["account", "create", "--name", "Test", "--email", "test@example.com"]);
        stage.sallyport(&["login", "--email", "test@example.com"]);
        stage.new_token();
        stage.kubectl(&["create", "namespace", name]);
        stage
    }

    /// Puts a new token into the file; returns its id.
    pub(crate) fn new_token(&self) -> String {
        let token = self.sallyport(&[
            "token",
            "create",
            "--name",
            &crate::harness::fresh_name(),
            "--scope",
            "sockets:write",
            "--scope",
            "identity:write",
        ]);
        std::fs::write(&self.token_file, token["token"].as_str().unwrap()).unwrap();
        token["id"].as_str().unwrap().to_owned()
    }

    /// Runs a command of sallyport that must work; gives what it printed.
    #[track_caller]
    pub(crate) fn sallyport(&self, args: &[&str]) -> Value {
        let args = [args, &["-o", "json"]].concat();
        let output = self.cluster.inside(&self.home, env!("CARGO_BIN_EXE_sallyport"), &args).output().unwrap();
        assert!(output.status.success(), "sallyport {args:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    /// The sockets of the account, by their names.
    pub(crate) fn sockets(&self) -> BTreeMap<String, Value> {
        let listed = self.sallyport(&["socket", "ls"]);
        let sockets = listed.as_array().unwrap();
        sockets.iter().map(|socket| (socket["name"].as_str().unwrap().to_owned(), socket.clone())).collect()
    }

    /// kubectl in this namespace.
    #[track_caller]
    pub(crate) fn kubectl(&self, args: &[&str]) -> String {
        self.cluster.kubectl(&self.home, &[&["--namespace", &self.namespace], args].concat(), None)
    }

    /// Applies an object in this namespace.
    #[track_caller]
    pub(crate) fn apply(&self, object: &Value) {
        let args = ["--namespace", &self.namespace, "apply", "--filename", "-"];
        self.cluster.kubectl(&self.home, &args, Some(&object.to_string()));
    }

    /// An object of the cluster.
    #[track_caller]
    pub(crate) fn object(&self, kind: &str, name: &str) -> Value {
        serde_json::from_str(&self.kubectl(&["get", kind, name, "--output", "json"])).unwrap()
    }

    /// A Service of one HTTP port with these annotations.
    pub(crate) fn service(&self, name: &str, annotations: Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": name, "annotations": annotations },
            "spec": { "selector": { "app": name }, "ports": [{ "port": 80, "targetPort": POD_PORT }] },
        })
    }

    /// Sets the endpoints of a Service: each with whether it is ready, and whether it is on its way out.
    pub(crate) fn endpoints(&self, service: &str, pods: &[(&Pod, bool, bool)]) {
        let endpoints: Vec<Value> = pods
            .iter()
            .map(|(pod, is_ready, is_terminating)| {
                json!({
                    "addresses": [pod.address.ip().to_string()],
                    "conditions": { "ready": is_ready, "serving": true, "terminating": is_terminating },
                })
            })
            .collect();
        self.apply(&json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": { "name": format!("{service}-1"), "labels": { "kubernetes.io/service-name": service } },
            "addressType": "IPv4",
            "ports": [{ "name": "", "port": POD_PORT, "protocol": "TCP" }],
            "endpoints": endpoints,
        }));
    }

    /// An exposed Service with these pods, ready.
    pub(crate) fn expose(&self, name: &str, pods: &[&Pod]) {
        self.apply(&self.service(name, json!({ "sallyport.dev/expose": "true" })));
        self.endpoints(name, &pods.iter().map(|pod| (*pod, true, false)).collect::<Vec<_>>());
    }

    /// The condition of a Service.
    pub(crate) fn condition(&self, service: &str) -> Option<Value> {
        let conditions = self.object("service", service)["status"]["conditions"].clone();
        let found = conditions.as_array()?.iter().find(|one| one["type"] == "sallyport.dev/Exposed")?;
        Some(found.clone())
    }

    /// Waits until the Service is exposed; gives the public URL.
    #[track_caller]
    pub(crate) fn exposed(&self, service: &str) -> String {
        wait_until(&format!("the public name of {service}"), || {
            let condition = self.condition(service)?;
            (condition["status"] == "True").then(|| condition["message"].as_str().unwrap().to_owned())
        })
    }

    /// Waits until the condition of the Service is false for this reason; gives the message.
    #[track_caller]
    pub(crate) fn refused(&self, service: &str, reason: &str) -> String {
        wait_until(&format!("the refusal {reason} of {service}"), || {
            let condition = self.condition(service)?;
            let is_so = condition["status"] == "False" && condition["reason"] == reason;
            is_so.then(|| condition["message"].as_str().unwrap().to_owned())
        })
    }

    /// The Events about an object: reasons and notes.
    pub(crate) fn events(&self, object: &str) -> Vec<(String, String)> {
        let events = self.kubectl(&["get", "events.events.k8s.io", "--output", "json"]);
        let events: Value = serde_json::from_str(&events).unwrap();
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let all = events["items"].as_array().unwrap().iter();
        all.filter(|event| event["regarding"]["name"] == object)
            .map(|event| (word(&event["reason"]), word(&event["note"])))
            .collect()
    }

    /// Starts a replica of the controller.
    pub(crate) fn replica(&self, name: &str) -> Replica {
        self.replica_with(name, &[])
    }

    /// Starts a replica with these further options.
    pub(crate) fn replica_with(&self, name: &str, more: &[&str]) -> Replica {
        let api = format!("https://api.localhost:{}", self.port);
        let kubeconfig = self.cluster.kubeconfig();
        let [ca, token, kubeconfig] =
            [&self.ca, &self.token_file, &kubeconfig].map(|path| path.to_str().unwrap().to_owned());
        let mut args = vec!["kube", "--cluster", &self.namespace, "--api", &api, "--ca", &ca, "--token-file", &token];
        args.extend(["--kubeconfig", &kubeconfig, "--namespace", &self.namespace, "--replica", name]);
        args.extend(["--watch-namespace", &self.namespace, "--listen", "127.0.0.1:0"]);
        args.extend(["--lease-duration", "3s", "--lease-renew", "300ms", "--retry", "200ms", "--token-poll", "200ms"]);
        args.extend(["--token-check", "500ms", "--drain-delay", "300ms", "--settle", "50ms"]);
        args.extend(more);
        let program = Program::start(&mut self.cluster.inside(&self.home, env!("CARGO_BIN_EXE_sallyport"), &args));
        let line = program.wait_for("answers /healthz");
        let address = line.split_whitespace().find_map(|word| word.strip_prefix("address=")).unwrap().to_owned();
        Replica { program, address, cluster: self.cluster }
    }

    /// Runs a command beside the controller, such as `ls`, for this installation.
    pub(crate) fn kube(&self, command: &str, more: &[&str]) -> Output {
        let api = format!("https://api.localhost:{}", self.port);
        let kubeconfig = self.cluster.kubeconfig();
        let [ca, token, kubeconfig] =
            [&self.ca, &self.token_file, &kubeconfig].map(|path| path.to_str().unwrap().to_owned());
        let mut args = vec!["kube", command, "--cluster", &self.namespace, "--api", &api, "--ca", &ca];
        args.extend(["--token-file", &token, "--kubeconfig", &kubeconfig, "--namespace", &self.namespace]);
        args.extend(["--watch-namespace", &self.namespace]);
        args.extend(more);
        self.cluster.inside(&self.home, env!("CARGO_BIN_EXE_sallyport"), &args).output().unwrap()
    }

    /// Requests to a public URL, one after another over one connection; the answers.
    pub(crate) fn requests(&self, url: &str, count: usize) -> Vec<String> {
        let urls = format!("{url}/?[1-{count}]");
        let ca = self.ca.to_str().unwrap();
        let args = ["-sS", "--max-time", "120", "--fail-with-body", "--cacert", ca, &urls];
        let output = self.cluster.inside(&self.home, "curl", &args).output().unwrap();
        assert!(output.status.success(), "{url}: {}{}", text(&output.stderr), text(&output.stdout));
        text(&output.stdout).lines().map(str::to_owned).collect()
    }

    /// The status of one request; 0 if there was no answer.
    pub(crate) fn status(&self, url: &str) -> u16 {
        let ca = self.ca.to_str().unwrap();
        let args = ["-sS", "--max-time", "20", "--output", "/dev/null", "-w", "%{http_code}", "--cacert", ca, url];
        let output = self.cluster.inside(&self.home, "curl", &args).output().unwrap();
        text(&output.stdout).trim().parse().unwrap_or(0)
    }

    /// Waits until requests to the URL have this status.
    #[track_caller]
    pub(crate) fn answers(&self, url: &str, status: u16) {
        wait_until(&format!("status {status} of {url}"), || (self.status(url) == status).then_some(()));
    }

    /// Requests without a pause, on several connections, until the load is ended.
    pub(crate) fn load(&self, url: &str) -> Load {
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, ca, urls) = (is_over.clone(), self.ca.to_str().unwrap().to_owned(), format!("{url}/?[1-200]"));
        let args = ["-sS", "--parallel", "--parallel-max", "8", "--max-time", "60", "--output", "/dev/null"];
        let mut command = self.cluster.inside(&self.home, "curl", &args);
        command.args(["-w", "%{http_code} %{errormsg}\n", "--cacert", &ca, &urls]);
        let thread = thread::spawn(move || {
            let mut answers: BTreeMap<String, usize> = BTreeMap::new();
            while !over.load(Ordering::SeqCst) {
                let output = command.output().unwrap();
                for line in text(&output.stdout).lines() {
                    *answers.entry(line.trim().to_owned()).or_default() += 1;
                }
            }
            answers
        });
        Load { is_over, thread }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // What is left must not keep other tests' lists long; nobody waits for it.
        let args = ["delete", "namespace", &self.namespace, "--wait=false"];
        drop(self.cluster.try_kubectl(&self.home, &args, None));
    }
}

/// Requests that go on.
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    thread: thread::JoinHandle<BTreeMap<String, usize>>,
}

impl Load {
    /// Ends it; gives how often each status came.
    pub(crate) fn end(self) -> BTreeMap<String, usize> {
        self.is_over.store(true, Ordering::SeqCst);
        self.thread.join().unwrap()
    }
}

/// A replica of the controller.
pub(crate) struct Replica {
    pub(crate) program: Program,
    address: String,
    cluster: &'static Cluster,
}

impl Replica {
    /// What it answers to a GET of this path: status and body.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let url = format!("http://{}{path}", self.address);
        let args = ["-sS", "--max-time", "20", "-w", "\n%{http_code}", &url];
        let output = self.cluster.inside(&Home::new(), "curl", &args).output().unwrap();
        let printed = text(&output.stdout);
        let (body, status) = printed.rsplit_once('\n').unwrap_or(("", "0"));
        (status.trim().parse().unwrap_or(0), body.to_owned())
    }

    /// The value of a metric.
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        let (_, text) = self.get("/metrics");
        let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' '])))?;
        line.rsplit_once(' ')?.1.parse().ok()
    }

    /// Waits until it is ready.
    #[track_caller]
    pub(crate) fn ready(&self) {
        wait_until("readiness", || (self.get("/readyz").0 == 200).then_some(()));
    }

    /// Waits until it leads.
    #[track_caller]
    pub(crate) fn leads(&self) {
        wait_until("the leadership", || (self.metric("sallyport_kube_leader") == Some(1.0)).then_some(()));
    }
}
