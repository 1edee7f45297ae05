//! wrk, if it is installed: a load generator that never tries another address or a second time, beside the laboratory's
//! own clients.

use std::{
    collections::BTreeMap,
    env,
    io::Read as _,
    os::unix::process::CommandExt as _,
    process::{Child, Stdio},
    time::Duration,
};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::{chaos::end, error::LabError, state::Lab};

/// How much of its output is read.
const MAX_OUTPUT_BYTES: u64 = 65_536;

/// The report of wrk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrkReport {
    /// Answers.
    pub requests: u64,
    /// Answers with a status of 300 or more.
    pub refused: u64,
    /// Failed connects.
    pub connect: u64,
    /// Connections that broke during an answer.
    pub read: u64,
    /// Connections that broke during a request.
    pub write: u64,
    /// Answers after more than two seconds.
    pub timeout: u64,
    /// Its error output, if it failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub instead: Option<String>,
}

impl WrkReport {
    /// Parses the final output of wrk, or else its error output.
    fn parse(output: &str, complaint: &str) -> Self {
        let mut report = Self::default();
        if !output.contains(" requests in ") {
            let last = complaint.lines().map(str::trim).rfind(|line| !line.is_empty());
            report.instead = Some(last.unwrap_or("it counted nothing").to_owned());
        }
        let number = |text: &str| text.trim().parse().unwrap_or(0);
        for line in output.lines().map(str::trim) {
            if let Some((count, _)) = line.split_once(" requests in ") {
                report.requests = number(count);
            } else if let Some(count) = line.strip_prefix("Non-2xx or 3xx responses:") {
                report.refused = number(count);
            } else if let Some(errors) = line.strip_prefix("Socket errors:") {
                for (name, count) in errors.split(',').filter_map(|part| part.trim().split_once(' ')) {
                    match name {
                        "connect" => report.connect = number(count),
                        "read" => report.read = number(count),
                        "write" => report.write = number(count),
                        "timeout" => report.timeout = number(count),
                        _ => {}
                    }
                }
            }
        }
        report
    }
}

/// wrk at the clients of all regions, until it is ended.
pub(crate) struct Wrk(Vec<(String, Child)>);

impl Wrk {
    /// # Errors
    /// It is not installed.
    pub(crate) fn check() -> Result<(), LabError> {
        let path = env::var_os("PATH").unwrap_or_default();
        let is_there = env::split_paths(&path).any(|folder| folder.join("wrk").is_file());
        let missing = || LabError::Missing { program: "wrk", how: "install wrk with its package" };
        is_there.then_some(()).ok_or_else(missing)
    }

    /// Starts it with this many connections, at most for this long in case this program is killed. Does nothing without
    /// connections.
    pub(crate) fn start(lab: &Lab, connections: Option<u16>, most: Duration) -> Result<Self, LabError> {
        let mut all = Self(Vec::new());
        let Some(connections) = connections else { return Ok(all) };
        for client in lab.clients() {
            let mut command = lab.command_on(&client, "wrk")?;
            command.args(["-t", "1", "-d", &format!("{}s", most.as_secs() + 1), "-c", &connections.max(1).to_string()]);
            command.arg(format!("https://{}/", lab.secrets.host));
            command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            all.0.push((client, command.spawn().map_err(LabError::io("start wrk"))?));
        }
        Ok(all)
    }

    /// Ends it. Returns the reports by client.
    pub(crate) fn end(mut self) -> BTreeMap<String, WrkReport> {
        let report = |(client, mut child): (String, Child)| {
            end(&mut child, Signal::INT);
            let (mut text, mut complaint) = (String::new(), String::new());
            if let Some(output) = child.stdout.take() {
                drop(output.take(MAX_OUTPUT_BYTES).read_to_string(&mut text));
            }
            if let Some(errors) = child.stderr.take() {
                drop(errors.take(MAX_OUTPUT_BYTES).read_to_string(&mut complaint));
            }
            (client, WrkReport::parse(&text, &complaint))
        };
        std::mem::take(&mut self.0).into_iter().map(report).collect()
    }
}

impl Drop for Wrk {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_wrk_prints_is_understood() {
        let output = "Running 10s test @ https://x/\n  1 threads and 20 connections\n  \
                      Thread Stats   Avg      Stdev     Max   +/- Stdev\n    \
                      Latency     1.00ms    1.00ms  10.00ms   90.00%\n  1234 requests in 10.01s, 1.50MB read\n  \
                      Socket errors: connect 5, read 6, write 7, timeout 8\n  Non-2xx or 3xx responses: 9\n\
                      Requests/sec:    123.40\n";
        let report = WrkReport { requests: 1234, refused: 9, connect: 5, read: 6, write: 7, timeout: 8, instead: None };
        assert_eq!(WrkReport::parse(output, ""), report);
        let instead = |complaint: &str| WrkReport::parse("", complaint).instead.unwrap();
        assert_eq!(
            instead("x\nunable to connect to x:https Connection refused\n\n"),
            "unable to connect to x:https Connection refused"
        );
        assert_eq!(instead(""), "it counted nothing");
    }
}
