//! Faults in a running laboratory: killed and paused processes, cut and slowed wires; and their repair.

use std::{
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::{
    error::LabError,
    kernel,
    plan::{Process, Role},
    process::{self, Life, Started},
    relay::{self, Order, Wiring},
    state::Lab,
    topology::Link,
    up::END_TIME,
    wires::{Cut, Part},
};

/// The name of the NATS server that leads the cluster at the moment.
const LEADER: &str = "nats-leader";

/// When the log of a NATS server last named a leader, and which.
fn leader_in(log: &str) -> Option<(String, String)> {
    let line = log.lines().rfind(|line| line.contains(crate::up::LEADER))?;
    let (when, who) = line.split_once(crate::up::LEADER)?;
    // `[PID] 2026/11/22 09:00:00.123456 [INF] `: without the process id, lines sort by time.
    let when = when.split_once("] ").map_or(when, |(_, rest)| rest);
    let name = who.trim_start_matches(':').trim().split('/').next()?;
    Some((when.to_owned(), name.to_owned()))
}

impl Lab {
    /// Kills the processes of a node, of a region, or one by name (SIGKILL). Returns their names once they are gone.
    ///
    /// # Errors
    /// No process of this name runs, or the system does not end them.
    pub fn kill(&self, name: &str) -> Result<Vec<String>, LabError> {
        let (names, killed) = self.signal(name, Signal::KILL, &[Life::Runs, Life::Paused])?;
        let began = Instant::now();
        while killed.iter().any(|one| one.life() != Life::Gone) {
            if began.elapsed() > END_TIME {
                let what = format!("the end of {name}");
                return Err(LabError::Late { what, seconds: END_TIME.as_secs(), seen: String::new() });
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(names)
    }

    /// Stops processes (SIGSTOP): their connections stay open, and do not answer.
    ///
    /// # Errors
    /// No process of this name runs.
    pub fn pause(&self, name: &str) -> Result<Vec<String>, LabError> {
        self.signal(name, Signal::STOP, &[Life::Runs]).map(|(names, _)| names)
    }

    /// Continues paused processes, and starts ended ones. Returns their names.
    ///
    /// # Errors
    /// There is nothing of this name, or a process does not become ready.
    pub fn resume(&mut self, name: &str) -> Result<Vec<String>, LabError> {
        let mut names = Vec::new();
        for process in self.meant(name)? {
            let alive = self.alive(&process);
            if alive.is_empty() {
                // In the order of the plan, each after those before it are ready: a control needs its database.
                self.start(&process, &[])?.wait()?;
            } else {
                let paused: Vec<_> = alive.iter().filter(|process| process.life() == Life::Paused).collect();
                if paused.is_empty() {
                    continue;
                }
                for one in paused {
                    one.signal(Signal::CONT).map_err(LabError::io(format!("let {} go on", process.name)))?;
                }
            }
            names.push(process.name);
        }
        Ok(names)
    }

    /// Cuts between a node or region and everything else, or one other.
    ///
    /// # Errors
    /// A name does not exist, or both are the same.
    pub fn partition(&self, name: &str, from: Option<&str>) -> Result<Wiring, LabError> {
        let one = self.part(name)?;
        let other = from.map(|name| self.part(name)).transpose()?;
        if other == Some(one) {
            return Err(LabError::Unfit(format!("{name} cannot be cut off from itself")));
        }
        relay::order(&self.places, &Order::Cut(Cut { one, other }))
    }

    /// Adds delay, loss and a bandwidth to a node, or to the border of a region.
    ///
    /// # Errors
    /// The name does not exist, or the link is not possible.
    pub fn slow(&self, name: &str, link: Link) -> Result<Wiring, LabError> {
        link.check()?;
        if link == Link::default() {
            return Err(LabError::Unfit("a link is slowed by a delay, loss or a rate, and none was given".to_owned()));
        }
        relay::order(&self.places, &Order::Slow(self.part(name)?, link))
    }

    /// Undoes [`Self::partition`] and [`Self::slow`] of this name, or all.
    ///
    /// # Errors
    /// The name does not exist.
    pub fn heal(&self, name: Option<&str>) -> Result<Wiring, LabError> {
        let part = name.map(|name| self.part(name)).transpose()?;
        relay::order(&self.places, &Order::Heal(part))
    }

    /// The state of the wires.
    ///
    /// # Errors
    /// They do not answer.
    pub fn wiring(&self) -> Result<Wiring, LabError> {
        relay::order(&self.places, &Order::Show)
    }

    fn part(&self, name: &str) -> Result<Part, LabError> {
        self.plan.part(name).ok_or_else(|| match self.plan.processes_of(name).first() {
            Some(process) => {
                let node = &self.plan.nodes[process.node].name;
                LabError::Unfit(format!("{name} is a process of the node {node}: wires are those of nodes and regions"))
            }
            None => self.no_such(name),
        })
    }

    /// The NATS server that leads the cluster, by the newest line in the logs.
    fn leader(&self) -> Option<String> {
        let logs = self.plan.processes.iter().filter(|process| process.role == Role::Bus);
        let lines = logs.filter_map(|process| {
            let log = std::fs::read_to_string(self.places.log(&process.name)).ok()?;
            leader_in(&log)
        });
        lines.max().map(|(_, name)| name)
    }

    /// The processes of a name.
    fn meant(&self, name: &str) -> Result<Vec<Process>, LabError> {
        let leader = if name == LEADER { self.leader() } else { None };
        let name = leader.as_deref().unwrap_or(name);
        let processes = match self.plan.part(name) {
            Some(Part::Region(region)) => {
                let within = |process: &&Process| self.plan.nodes[process.node].region == region;
                self.plan.processes.iter().filter(within).collect()
            }
            _ => self.plan.processes_of(name),
        };
        if !processes.is_empty() {
            return Ok(processes.into_iter().cloned().collect());
        }
        Err(match self.plan.node(name) {
            Some(_) => LabError::Unfit(format!("nothing of the laboratory's own runs on {name}")),
            None => self.no_such(name),
        })
    }

    /// The running processes: a database has many, and all in its namespace count.
    fn alive(&self, process: &Process) -> Vec<Started> {
        let started = self.state.started.get(&process.name).filter(|started| started.life() != Life::Gone);
        let mut all: Vec<_> = started.copied().into_iter().collect();
        if process.role == Role::Database {
            let namespace = self.plan.namespace(&self.plan.nodes[process.node]);
            let others = process::in_namespace(&kernel::path(&namespace));
            let first = all.first().copied();
            all.extend(others.into_iter().filter(|other| Some(*other) != first && other.life() != Life::Gone));
        }
        all
    }

    /// Sends a signal to the processes of a name in these states. Returns names and processes.
    fn signal(&self, name: &str, signal: Signal, lives: &[Life]) -> Result<(Vec<String>, Vec<Started>), LabError> {
        let (mut names, mut reached) = (Vec::new(), Vec::new());
        for process in self.meant(name)? {
            let before = reached.len();
            for one in self.alive(&process) {
                if lives.contains(&one.life())
                    && one.signal(signal).map_err(LabError::io(format!("signal {}", process.name)))?
                {
                    reached.push(one);
                }
            }
            if reached.len() > before {
                names.push(process.name);
            }
        }
        if names.is_empty() {
            return Err(LabError::Unfit(format!("nothing of {name} runs")));
        }
        Ok((names, reached))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_line_names_the_leader() {
        let log = "[7] 2026/11/22 09:00:01.000002 [INF] JetStream cluster new metadata leader: nats-2/lab\n\
                   [7] 2026/11/22 09:00:03.000002 [INF] JetStream cluster new metadata leader: nats-1/lab\n\
                   [7] 2026/11/22 09:00:04.000002 [INF] something\n";
        let (when, name) = leader_in(log).unwrap();
        assert_eq!(name, "nats-1");
        let older =
            leader_in("[99999] 2026/11/22 09:00:02.9 [INF] JetStream cluster new metadata leader: nats-3/lab").unwrap();
        assert!(older.0 < when, "{older:?} {when}");
        assert_eq!(leader_in("nothing"), None);
    }
}
