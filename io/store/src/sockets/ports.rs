//! Ports of sockets.

use std::{collections::HashSet, ops::RangeInclusive};

use crate::db::{error::StoreError, sql, write::Write};

/// A socket's request for a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortRequest {
    /// No port.
    None,
    /// Any free port of the range: one that was never used, otherwise the one freed longest ago, so that clients of a
    /// former socket do not reach a new one.
    Any(RangeInclusive<u16>),
    /// This port.
    This(u16),
}

/// Selects the port for the request: the former one if any port will do and the former one is free. The caller stores
/// the port with the socket.
pub(crate) async fn take_port(
    write: &mut Write,
    wish: &PortRequest,
    former: Option<u16>,
) -> Result<Option<u16>, StoreError> {
    match wish {
        PortRequest::None => Ok(None),
        PortRequest::This(port) => {
            if is_taken(write, *port).await? {
                Err(StoreError::PortTaken { port: *port })
            } else {
                Ok(Some(*port))
            }
        }
        PortRequest::Any(range) => match former.filter(|port| range.contains(port)) {
            Some(port) if !is_taken(write, port).await? => Ok(Some(port)),
            _ => any_port(write, range).await.map(Some),
        },
    }
}

async fn is_taken(write: &mut Write, port: u16) -> Result<bool, StoreError> {
    let count: i64 =
        sql::query_scalar("SELECT count(*) FROM sockets WHERE port = $1").bind(port).fetch_one(write.sql()).await?;
    Ok(count > 0)
}

async fn any_port(write: &mut Write, range: &RangeInclusive<u16>) -> Result<u16, StoreError> {
    let (from, to) = (*range.start(), *range.end());
    let taken: Vec<u16> = sql::query_scalar("SELECT port FROM sockets WHERE port BETWEEN $1 AND $2 ORDER BY port")
        .bind(from)
        .bind(to)
        .fetch_all(write.sql())
        .await?;
    let freed: Vec<u16> =
        sql::query_scalar("SELECT port FROM freed_ports WHERE port BETWEEN $1 AND $2 ORDER BY position")
            .bind(from)
            .bind(to)
            .fetch_all(write.sql())
            .await?;
    let taken: HashSet<u16> = taken.into_iter().collect();
    let used: HashSet<u16> = freed.iter().copied().collect();
    let never_used = range.clone().find(|port| !taken.contains(port) && !used.contains(port));
    never_used
        .or_else(|| freed.iter().copied().find(|port| !taken.contains(port)))
        .ok_or(StoreError::PortsExhausted { from, to })
}
