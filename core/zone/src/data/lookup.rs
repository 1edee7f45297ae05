//! Where a name is in a zone (RFC 1034 section 4.3.2, RFC 4592 section 3.3).

use super::zone::{Node, Zone};
use crate::{name::NameBuf, record::RecordType};

/// What a zone has for a name.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Found<'z> {
    /// The name itself, or the wildcard that stands for it.
    Name(&'z Node),
    /// A delegation at the last `labels` labels of the name.
    Cut { node: &'z Node, labels: usize },
    /// A DNAME record at the last `labels` labels, above the name.
    Redirect { node: &'z Node, labels: usize },
    /// There is no such name.
    Nothing,
}

impl Zone {
    /// Looks a name up that is within the zone.
    pub(crate) fn find(&self, name: &NameBuf, rtype: RecordType) -> Found<'_> {
        if let Some(node) = self.node(name.as_wire()).filter(|node| node.is_own()) {
            return Found::Name(node);
        }
        let mut closest = None;
        for labels in self.apex_labels()..=name.label_count() {
            let Some(node) = self.node(name.suffix(labels)) else { break };
            let is_name = labels == name.label_count();
            // The DS record of a delegation is the parent's (RFC 4035 section 3.1.4.1).
            if node.is_cut() && !(is_name && rtype == RecordType::DS) {
                return Found::Cut { node, labels };
            }
            if is_name {
                return Found::Name(node);
            }
            // The name of a DNAME record is not redirected itself (RFC 6672 section 2.3).
            if node.set(RecordType::DNAME).is_some() {
                return Found::Redirect { node, labels };
            }
            closest = Some((node, labels));
        }
        closest.and_then(|closest| self.wildcard(name, closest)).map_or(Found::Nothing, Found::Name)
    }

    /// The node with the addresses of a name server, which may be below a delegation.
    pub(crate) fn find_glue(&self, wire: &[u8]) -> Option<&Node> {
        if let Some(node) = self.node(wire) {
            return Some(node);
        }
        let name = NameBuf::read(wire)?;
        let known = (self.apex_labels()..name.label_count()).map_while(|labels| {
            let node = self.node(name.suffix(labels))?;
            Some((node, labels))
        });
        known.last().and_then(|closest| self.wildcard(&name, closest))
    }

    /// The wildcard below the closest name that is there (RFC 4592 section 3.3.1).
    fn wildcard(&self, name: &NameBuf, (closest, labels): (&Node, usize)) -> Option<&Node> {
        if !closest.has_wildcard {
            return None;
        }
        let mut wire = [0; 257];
        let suffix = name.suffix(labels);
        wire[..2].copy_from_slice(b"\x01*");
        wire[2..2 + suffix.len()].copy_from_slice(suffix);
        self.node(&wire[..2 + suffix.len()])
    }
}
