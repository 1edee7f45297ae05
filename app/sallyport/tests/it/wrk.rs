//! Requests without a pause, by wrk.

use std::process::{Child, Command, Stdio};

use crate::harness::{Home, text};

/// wrk, for as long as the test needs it.
pub(crate) struct Load {
    wrk: Child,
}

/// What became of its requests.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) requests: u64,
    /// Connections that were refused, broke or timed out.
    pub(crate) broken: u64,
    /// Answers of another status than 2xx and 3xx.
    pub(crate) refused: u64,
}

impl Load {
    pub(crate) fn start(home: &Home, host: &str, port: u16) -> Self {
        let url = format!("https://{host}:{port}/");
        let args = ["-t", "1", "-c", "8", "-d", "300s", "--timeout", "30s", &url];
        let mut command = home.knowing(host, "wrk", &args);
        let wrk = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Self { wrk }
    }

    /// Ends wrk by SIGINT, at which wrk prints its counts.
    pub(crate) fn stop(self) -> Tally {
        let status = Command::new("kill").args(["-INT", &self.wrk.id().to_string()]).status().unwrap();
        assert!(status.success());
        let output = self.wrk.wait_with_output().unwrap();
        let printed = text(&output.stdout);
        assert!(printed.contains("requests in"), "wrk made no requests: {printed}{}", text(&output.stderr));
        let number_before = |word: &str| -> u64 {
            let line = printed.lines().find(|line| line.contains(word)).unwrap_or_default();
            line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        let numbers_of = |word: &str| -> u64 {
            let line = printed.lines().find(|line| line.contains(word)).unwrap_or_default();
            line.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse::<u64>().ok()).sum()
        };
        let refused = printed.lines().find_map(|line| line.trim().strip_prefix("Non-2xx or 3xx responses: "));
        let refused = refused.and_then(|number| number.trim().parse().ok()).unwrap_or(0);
        Tally { requests: number_before("requests in"), broken: numbers_of("Socket errors"), refused }
    }

    /// Ends it; fails the test when a single request did not get its 200.
    pub(crate) fn all_good(self) {
        let tally = self.stop();
        assert!(tally.requests > 0 && (tally.broken, tally.refused) == (0, 0), "{tally:?}");
    }
}
