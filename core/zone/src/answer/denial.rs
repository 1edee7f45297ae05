//! Says what is not there: the SOA record, and one NSEC record that is made for the name (RFC 9824).

use super::{
    outcome::Rcode,
    resolve::{At, Resolver},
    response::Section,
    settings::State,
};
use crate::{
    data::Node,
    dnssec::{Signable, nsec_data, write_signatures},
    name::NameBuf,
    record::{RecordType, SetPlace, TypeBitmap},
};

/// What is not there.
#[derive(Clone, Copy)]
pub(super) enum Denied<'a> {
    /// The name.
    Name,
    /// The type; the name has others, or none.
    Types(&'a At<'a>),
    /// The DS record of a delegation.
    Delegation(&'a Node),
}

impl Resolver<'_, '_> {
    /// Writes a negative answer.
    pub(super) fn deny(&mut self, name: &NameBuf, place: SetPlace, denied: Denied<'_>) {
        let is_name = matches!(denied, Denied::Name);
        //= RFC 9824 section 5.1
        //# a Compact Denial authoritative server implementing this signaling scheme, will set the Compact Answers OK
        //# EDNS header flag, and for non-existent names will additionally set the response code field to NXDOMAIN.
        if is_name && (self.keys.is_none() || self.is_compact_ok) {
            self.response.set_rcode(Rcode::NX_DOMAIN);
        }
        let zone = self.zone;
        let at_apex = SetPlace { owner: place.apex, apex: place.apex };
        let (soa, ttl) = (zone.negative_soa(), zone.soa().ttl());
        self.write_as(Section::Authority, soa, ttl, zone.apex().as_wire(), at_apex);
        if self.keys.is_some() {
            self.write_nsec(Section::Authority, name.as_wire(), place, denied);
        }
    }

    /// Writes the NSEC record of the name with its signatures.
    pub(super) fn write_nsec(&mut self, section: Section, owner: &[u8], place: SetPlace, denied: Denied<'_>) {
        let Some(keys) = self.keys else { return };
        let is_cut = matches!(denied, Denied::Delegation(_));
        let mut types = match denied {
            //= RFC 9824 section 3.1
            //# The Type Bit Maps field MUST only have the bits set for the following RR Types: RRSIG, NSEC, and
            //# NXNAME.
            Denied::Name => {
                let mut types = TypeBitmap::new();
                types.insert(RecordType::NXNAME);
                types
            }
            Denied::Types(at) => at.types(self.view, &self.client, self.now),
            Denied::Delegation(node) => {
                let mut types = TypeBitmap::new();
                types.insert(RecordType::NS);
                node.set(RecordType::DS).iter().for_each(|_| types.insert(RecordType::DS));
                types
            }
        };
        types.insert(RecordType::RRSIG);
        types.insert(RecordType::NSEC);
        // An NSEC record lives as long as negative answers (RFC 9077).
        let (ttl, now) = (self.zone.negative_soa().ttl(), self.now);
        let State { signatures, scratch, data, .. } = &mut *self.state;
        data.clear();
        nsec_data(owner, is_cut, &types, data);
        self.response.write_with(section, |out| {
            out.extend((0xc000 | place.owner).to_be_bytes());
            out.extend(RecordType::NSEC.0.to_be_bytes());
            out.extend(1_u16.to_be_bytes());
            out.extend(ttl.to_be_bytes());
            out.extend((data.len() as u16).to_be_bytes());
            out.extend_from_slice(data);
            let signable =
                Signable { owner, rtype: RecordType::NSEC, ttl, sent_ttl: ttl, data: std::iter::once(data.as_slice()) };
            1 + write_signatures(signable, place.owner, keys, now, signatures, scratch, out)
        });
    }
}
