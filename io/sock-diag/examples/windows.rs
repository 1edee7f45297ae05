//! Watches TCP connections for five seconds, and says in one sentence what limits each.
//!
//! ```sh
//! cargo run -p sallyport-sock-diag --example windows -- 443 windows.svg
//! ```
//!
//! The target is a port, `pid:NUMBER`, or a flow as `ADDRESS:PORT-ADDRESS:PORT`. With a file, it also draws.

#[cfg(target_os = "linux")]
mod linux {
    use std::{
        env, fs, thread,
        time::{Duration, Instant},
    };

    use sallyport_sock_diag::{Watch, network_counts};
    use sallyport_tcp_window::{Drawn, Target, draw, judge};

    const EVERY: Duration = Duration::from_millis(10);
    const LASTING: Duration = Duration::from_secs(5);

    pub(crate) fn run() -> Result<(), String> {
        let mut words = env::args().skip(1);
        let target = words.next().unwrap_or_default();
        let target: Target = target.parse().map_err(|error| format!("{target:?} is no target: {error}"))?;
        let earlier = network_counts();
        let mut watch = Watch::begin(target).map_err(|error| error.to_string())?;
        if watch.watched().is_empty() {
            return Err(format!("{target} has no TCP connections in this network namespace"));
        }
        let began = Instant::now();
        while watch.is_running() && began.elapsed() < LASTING {
            thread::sleep(EVERY);
            watch.read(began.elapsed()).map_err(|error| error.to_string())?;
        }
        let titled = watch.watched().iter().map(|watched| {
            let end = if watched.has_ended { ", which ended" } else { "" };
            (format!("{} to {}{end}", watched.local, watched.remote), judge(&watched.samples).sentence, watched)
        });
        let titled: Vec<_> = titled.collect();
        for (title, sentence, _) in &titled {
            println!("{title}: {sentence}");
        }
        if let Some(file) = words.next() {
            let drawn =
                titled.iter().map(|(title, sentence, watched)| Drawn { title, sentence, samples: &watched.samples });
            let drawing = draw(&drawn.collect::<Vec<_>>(), network_counts().since(earlier));
            fs::write(&file, drawing).map_err(|error| format!("{file} cannot be written: {error}"))?;
        }
        Ok(())
    }
}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    match linux::run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("{sentence}");
            std::process::ExitCode::FAILURE
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("TCP sockets are read on Linux alone.");
}
