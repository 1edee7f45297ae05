//! Telling systemd how the service is (sd_notify(3)). Outside of systemd these do nothing.

use sd_notify::NotifyState;

/// The longest status text that is sent, in bytes.
const MAX_STATUS_BYTES: usize = 1_024;

/// The service is up: what waits for it may start.
pub fn notify_ready() {
    notify(&NotifyState::Ready);
}

/// The service is going down.
pub fn notify_stopping() {
    notify(&NotifyState::Stopping);
}

/// One line on how the service is, as `systemctl status` shows it.
pub fn notify_status(text: &str) {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let end = line.floor_char_boundary(MAX_STATUS_BYTES);
    notify(&NotifyState::Status(&line[..end]));
}

fn notify(state: &NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(std::slice::from_ref(state)) {
        tracing::debug!(%error, %state, "systemd was not told");
    }
}
