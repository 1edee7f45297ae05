//! Notifies systemd of the state of the service (sd_notify(3)). Without systemd these functions do nothing.

use sd_notify::NotifyState;

/// The longest status text, in bytes.
const MAX_STATUS_BYTES: usize = 1_024;

/// The service is up: units that wait for it may start.
pub fn notify_ready() {
    notify(&NotifyState::Ready);
}

/// The service is stopping.
pub fn notify_stopping() {
    notify(&NotifyState::Stopping);
}

/// Another process is the main process of the service from now on. systemd believes it of a process of the same service.
pub fn notify_main_process(process_id: u32) {
    notify(&NotifyState::MainPid(process_id));
}

/// One line about the service for `systemctl status`.
pub fn notify_status(text: &str) {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let end = line.floor_char_boundary(MAX_STATUS_BYTES);
    notify(&NotifyState::Status(&line[..end]));
}

fn notify(state: &NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(std::slice::from_ref(state)) {
        tracing::debug!(%error, %state, "systemd could not be notified");
    }
}
