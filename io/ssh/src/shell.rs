//! The output of a client's shell.

use std::{future::poll_fn, sync::Arc};

use sallyport_ssh_proto::ChannelId;

use crate::connection::Inner;

/// Writes the console's lines to a shell until it ends.
pub(crate) async fn show(connection: Arc<Inner>, channel: ChannelId, head: String, line_end: &'static str) {
    let mut text = Some(head);
    while let Some(lines) = text {
        if !write(&connection, channel, &lines).await {
            return;
        }
        text = connection.console().next(line_end).await;
    }
    let status = connection.ending().map_or(0, |ending| ending.status);
    connection.link().with(|protocol| {
        protocol.send_exit_status(channel, status);
        protocol.finish(channel);
    });
    connection.link().release(channel);
}

/// Writes a whole text, waiting only for the window of this channel; false if the client accepts no more.
async fn write(connection: &Inner, channel: ChannelId, text: &str) -> bool {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let written = poll_fn(|cx| connection.link().poll_write(channel, rest, cx)).await;
        let Some(count) = written else { return false };
        rest = &rest[count..];
    }
    true
}
