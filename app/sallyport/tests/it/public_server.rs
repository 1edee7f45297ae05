//! The checklist for a server that others can reach (docs/operations.md), on a machine of its own: a network namespace
//! with the ports 80 and 443, a name service, and Pebble as the authority.

use std::process::{Command, Stdio};

use serde_json::json;

use crate::{
    harness::{Home, text},
    protocols::tool,
};

/// The address of the machine, and the domain.
const ADDRESS: &str = "192.0.2.10";
const DOMAIN: &str = "tunnels.example.com";

/// Runs in the namespace: `$1` is a folder with the files of Pebble, `$2` Pebble, `$3` its name server, `$4` sallyport.
const STEPS: &str = r#"
set -eu
ip link set lo up
ip link add machine0 type veth peer name wire0
ip address add 192.0.2.10/24 dev machine0
ip link set machine0 up
ip link set wire0 up
ip route add default via 192.0.2.1
echo "nameserver 192.0.2.10" >"$1/resolv.conf"
mount --bind "$1/resolv.conf" /etc/resolv.conf
programs=
trap 'kill $programs; wait' EXIT
"$3" -defaultIPv4 192.0.2.10 -defaultIPv6 "" -doh "" -http01 "" -https01 "" -tlsalpn01 "" \
  -dnsserver 192.0.2.10:53 -management 127.0.0.1:8055 >"$1/names.log" 2>&1 &
programs="$programs $!"
PEBBLE_VA_NOSLEEP=1 PEBBLE_WFE_NONCEREJECT=0 "$2" -config "$1/pebble.json" -dnsserver 192.0.2.10:53 \
  >"$1/pebble.log" 2>&1 &
programs="$programs $!"
until curl -fsS --cacert "$1/cert.pem" https://127.0.0.1:15000/roots/0 >"$1/root.pem" 2>/dev/null; do sleep 0.1; done

# The checklist. The authority is the one of this test.
"$4" up --data "$1/data" --domain tunnels.example.com --acme you@example.com \
  --acme-directory https://127.0.0.1:14000/dir --acme-root "$1/cert.pem" >"$1/up.log" 2>&1 &
programs="$programs $!"
until curl -fsS --cacert "$1/root.pem" https://api.tunnels.example.com/healthz 2>/dev/null; do sleep 0.2; done
"$4" account create --name Ann --email ann@example.com
"$4" login --email ann@example.com
"$4" doctor

# A service of this machine gets a name.
python3 -m http.server --bind 127.0.0.1 8000 >/dev/null 2>&1 &
programs="$programs $!"
"$4" connect 8000 >"$1/connect.log" 2>&1 &
programs="$programs $!"
until url=$(grep -o -m 1 'https://[a-z0-9-]*\.tunnels\.example\.com' "$1/connect.log"); do sleep 0.1; done
until curl -fsS --cacert "$1/root.pem" -o /dev/null -w "browser %{http_code}\n" "$url/" 2>/dev/null; do sleep 0.2; done
curl -sS -o /dev/null -w "plain %{http_code} %{redirect_url}\n" "http://tunnels.example.com/x"
"#;

#[test]
fn five_lines_make_a_server_that_browsers_trust() {
    let has_namespaces = Command::new("unshare").args(["--net", "--mount", "true"]).output();
    if !has_namespaces.is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("CI").is_none(), "network namespaces must be there in CI");
        println!("skipped: a machine of its own (a network namespace) needs root");
        return;
    }
    let (Some(pebble), Some(names)) = (tool("pebble"), tool("pebble-challtestsrv")) else { return };
    let home = Home::trusting("machine/root.pem");
    let dir = home.dir.path().join("machine");
    std::fs::create_dir_all(&dir).unwrap();
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=pebble", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout"])
        .args([dir.join("key.pem"), "-out".into(), dir.join("cert.pem")])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    let config = json!({"pebble": {
        "listenAddress": "127.0.0.1:14000", "managementListenAddress": "127.0.0.1:15000",
        "certificate": dir.join("cert.pem"), "privateKey": dir.join("key.pem"),
        "httpPort": 80, "tlsPort": 443, "ocspResponderURL": "", "externalAccountBindingRequired": false,
    }});
    std::fs::write(dir.join("pebble.json"), config.to_string()).unwrap();
    let mut machine = home.program("timeout");
    machine.args(["120", "unshare", "--net", "--mount", "sh", "-c", STEPS, "sh"]).arg(&dir);
    machine.args([pebble, names]).arg(env!("CARGO_BIN_EXE_sallyport")).stdin(Stdio::null());
    let output = machine.output().unwrap();
    let (printed, faults) = (text(&output.stdout), text(&output.stderr));
    let log = std::fs::read_to_string(dir.join("up.log")).unwrap_or_default();
    assert!(output.status.success(), "{printed}\n{faults}\n{log}");
    for check in ["clock", "authority", "dns", "ports", "caa", "certificates"] {
        assert!(printed.lines().any(|line| line.starts_with("ok ") && line.contains(check)), "{check}: {printed}");
    }
    assert!(printed.contains(&format!("{DOMAIN} and names beneath lead to {ADDRESS}")), "{printed}");
    assert!(printed.contains("browser 200"), "{printed}");
    assert!(printed.contains(&format!("plain 308 https://{DOMAIN}/x")), "{printed}");
    // The token of the first account is found beside the root, and is valid once.
    assert!(!dir.join("data/setup-token").exists());
}
