//! What a zone says about a name: records, chains of aliases, delegations, and what is not there (RFC 1034 section
//! 4.3.2).

use super::{
    denial::Denied,
    outcome::{AnswerKind, Rcode},
    response::{Response, Section},
    settings::{Now, Peer, Serving, State},
};
use crate::{
    data::{AddressSource, Asker, Client, Found, Node, View, Zone},
    dnssec::{Signable, ZoneKeys, write_signatures},
    name::{MAX_NAME_BYTES, NameBuf, is_suffix},
    query::{Query, Question},
    record::{RecordSet, RecordType, SetPlace, TypeBitmap},
};

/// The most CNAME records of one answer, those that follow from DNAME records included. Knot has the same bound.
const MAX_CHAIN: usize = 5;
/// The most hosts of an answer whose addresses are added.
const MAX_HOSTS: usize = 8;
/// The types that come with addresses from the view.
const OF_ADDRESSES: [RecordType; 3] = [RecordType::A, RecordType::AAAA, RecordType::HTTPS];
/// The last place of a message that a pointer reaches.
const MAX_POINTER: usize = 0x3fff;

/// What was found for the question, before anything is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct First<'z> {
    pub(super) kind: AnswerKind,
    found: Found<'z>,
}

/// A name that is there.
#[derive(Debug, Clone, Copy)]
pub(super) struct At<'a> {
    zone: &'a Zone,
    node: Option<&'a Node>,
    challenge: Option<&'a RecordSet>,
    is_apex: bool,
}

/// A set that was looked for.
enum Lookup<'a> {
    Set(&'a RecordSet),
    Nothing,
    /// Nobody has told yet: the addresses of another name.
    Unknown,
}

/// Looks the question up.
pub(super) fn first<'z>(zone: &'z Zone, view: &'z View, question: &Question) -> First<'z> {
    let found = zone.find(&question.name, question.rtype);
    let kind = match (found, At::of(zone, view, &question.name, found)) {
        (Found::Cut { .. }, _) => AnswerKind::Referral,
        (Found::Redirect { .. }, _) => AnswerKind::Records,
        (_, None) => AnswerKind::NoName,
        (_, Some(at)) if at.may_have(question.rtype) => AnswerKind::Records,
        _ => AnswerKind::NoData,
    };
    First { kind, found }
}

/// Writes the answer to the question. Returns its kind.
#[expect(clippy::too_many_arguments, reason = "the steps of an answer share them")]
pub(super) fn resolve(
    query: &Query<'_>,
    peer: &Peer,
    serving: &Serving<'_>,
    zone: &Zone,
    first: First<'_>,
    state: &mut State,
    now: Now,
    response: &mut Response<'_>,
) -> AnswerKind {
    let edns = query.edns;
    let is_signed = edns.is_some_and(|edns| edns.is_dnssec_ok);
    let mut resolver = Resolver {
        zone,
        view: serving.view,
        client: Asker::new(Client { address: peer.address, subnet: edns.and_then(|edns| edns.subnet) }),
        keys: zone.keys().map(AsRef::as_ref).filter(|_| is_signed),
        is_compact_ok: edns.is_some_and(|edns| edns.is_compact_ok),
        now: now.unix_seconds,
        redirects: [std::ptr::null(); MAX_CHAIN],
        state,
        response,
    };
    let kind = resolver.run(&query.question, first.found);
    let steered = resolver.client.steered();
    if let Some((choice, steered)) = steered {
        response.set_steered(&mut state.options, choice.scope, steered);
    }
    kind
}

impl<'a> At<'a> {
    fn of(zone: &'a Zone, view: &'a View, name: &NameBuf, found: Found<'a>) -> Option<Self> {
        let is_apex = name.as_wire() == zone.apex().as_wire();
        let challenge = view.challenge(name.as_wire());
        match found {
            Found::Name(node) => Some(Self { zone, node: Some(node), challenge: challenge.flatten(), is_apex }),
            // A name above a challenge is there, so that no resolver stops at it.
            Found::Nothing => challenge.map(|challenge| Self { zone, node: None, challenge, is_apex }),
            Found::Cut { .. } | Found::Redirect { .. } => None,
        }
    }

    fn set(&self, rtype: RecordType, view: &'a View, client: &Asker, now: u64) -> Lookup<'a> {
        if let Some(challenge) = self.challenge.filter(|_| rtype == RecordType::TXT) {
            return Lookup::Set(challenge);
        }
        let Some(node) = self.node else { return Lookup::Nothing };
        if let Some(set) = node.set(rtype) {
            return Lookup::Set(set);
        }
        if self.is_apex
            && let Some(set) = self.zone.keys().and_then(|keys| keys.phase(now).set(rtype))
        {
            return Lookup::Set(set);
        }
        let (true, Some(source)) = (OF_ADDRESSES.contains(&rtype), node.addresses()) else {
            return Lookup::Nothing;
        };
        match addresses(source, view, client) {
            Some(sets) => sets.set(rtype, client.client()).map_or(Lookup::Nothing, Lookup::Set),
            None if rtype == RecordType::HTTPS => Lookup::Nothing,
            None => Lookup::Unknown,
        }
    }

    /// Whether there may be records of this type, or a CNAME record: for rates, before anything is written.
    fn may_have(&self, rtype: RecordType) -> bool {
        let is_of_keys = matches!(rtype, RecordType::DNSKEY | RecordType::CDS | RecordType::CDNSKEY);
        let at_node = |node: &Node| {
            matches!(rtype, RecordType::ANY | RecordType::RRSIG | RecordType::NSEC)
                || node.set(rtype).is_some()
                || node.set(RecordType::CNAME).is_some()
                || (OF_ADDRESSES.contains(&rtype) && node.addresses().is_some())
        };
        self.node.is_some_and(at_node)
            || (rtype == RecordType::TXT && self.challenge.is_some())
            || (is_of_keys && self.is_apex && self.zone.keys().is_some())
    }

    /// The types at the name, without those of its signatures.
    pub(super) fn types(&self, view: &View, client: &Asker, now: u64) -> TypeBitmap {
        let mut types = TypeBitmap::new();
        let Some(node) = self.node else {
            self.challenge.iter().for_each(|_| types.insert(RecordType::TXT));
            return types;
        };
        node.add_types(&mut types);
        self.challenge.iter().for_each(|_| types.insert(RecordType::TXT));
        let source = node.addresses();
        let sets = source.and_then(|source| addresses(source, view, client));
        // Nobody may conclude from a denial that addresses that are not known yet do not exist.
        if source.is_some() && sets.is_none() {
            types.insert(RecordType::A);
            types.insert(RecordType::AAAA);
        }
        for rtype in OF_ADDRESSES {
            sets.and_then(|sets| sets.set(rtype, client.client())).iter().for_each(|_| types.insert(rtype));
        }
        if let Some(keys) = self.zone.keys().filter(|_| self.is_apex) {
            let phase = keys.phase(now);
            for rtype in [RecordType::DNSKEY, RecordType::CDS, RecordType::CDNSKEY] {
                phase.set(rtype).iter().for_each(|_| types.insert(rtype));
            }
        }
        types
    }
}

fn addresses<'v>(source: &AddressSource, view: &'v View, client: &Asker) -> Option<&'v crate::data::AddressSets> {
    match source {
        AddressSource::Edges(group) => view.group(group, client),
        AddressSource::Alias(target) => view.alias(target),
    }
}

/// What the steps of one answer share.
pub(super) struct Resolver<'a, 'b> {
    pub(super) zone: &'a Zone,
    pub(super) view: &'a View,
    pub(super) client: Asker,
    /// The keys, if the client takes signatures.
    pub(super) keys: Option<&'a ZoneKeys>,
    pub(super) is_compact_ok: bool,
    pub(super) now: u64,
    /// The DNAME records that were written. They are compared by their places alone.
    redirects: [*const RecordSet; MAX_CHAIN],
    pub(super) state: &'a mut State,
    pub(super) response: &'a mut Response<'b>,
}

/// A step of a chain: the next name, and where it is in the message.
struct Step {
    name: NameBuf,
    place: SetPlace,
}

/// What follows from the answer for one name.
#[expect(clippy::large_enum_variant, reason = "a chain is followed without allocation")]
enum Next {
    /// The answer is complete.
    Done(AnswerKind),
    /// A CNAME or DNAME record leads on.
    Follow(Step),
}

impl Next {
    fn follow_or(step: Option<Step>, kind: AnswerKind) -> Self {
        step.map_or(Self::Done(kind), Self::Follow)
    }
}

impl Resolver<'_, '_> {
    fn run(&mut self, question: &Question, found: Found<'_>) -> AnswerKind {
        let apex = question.name.suffix_at(self.zone.apex_labels()) as u16 + 12;
        let place = SetPlace { owner: 12, apex };
        let mut step = match self.step(&question.name, place, question.rtype, found, 0) {
            Next::Done(kind) => return kind,
            Next::Follow(step) => step,
        };
        // The places of the names that were answered for: a loop ends where it closes.
        let mut visited = [place.owner; MAX_CHAIN];
        for length in 1..=MAX_CHAIN {
            if self.response.is_truncated()
                || visited[..length].iter().any(|at| self.response.has_name_at(*at, step.name.as_wire()))
            {
                break;
            }
            if let Some(place) = visited.get_mut(length) {
                *place = step.place.owner;
            }
            // A target elsewhere is the client's to look up.
            if !is_suffix(step.name.as_wire(), self.zone.apex().as_wire())
                || usize::from(step.place.owner) > MAX_POINTER - MAX_NAME_BYTES
            {
                break;
            }
            let found = self.zone.find(&step.name, question.rtype);
            step = match self.step(&step.name, step.place, question.rtype, found, length) {
                Next::Done(_) => break,
                Next::Follow(step) => step,
            };
        }
        AnswerKind::Records
    }

    /// Answers for one name, to which so many CNAME records have led.
    fn step(&mut self, name: &NameBuf, place: SetPlace, rtype: RecordType, found: Found<'_>, links: usize) -> Next {
        match found {
            Found::Cut { node, labels } => {
                self.referral(name, place, node, labels);
                return Next::Done(AnswerKind::Referral);
            }
            Found::Redirect { node, labels } => {
                self.response.set_authoritative();
                if links == MAX_CHAIN {
                    return Next::Done(AnswerKind::Records);
                }
                let step = self.redirect(name, place, node, labels);
                // The CNAME record that was made is what the client asked for.
                if step.is_some() && matches!(rtype, RecordType::CNAME | RecordType::ANY) {
                    return Next::Done(AnswerKind::Records);
                }
                return Next::follow_or(step, AnswerKind::Failed);
            }
            Found::Name(_) | Found::Nothing => {}
        }
        self.response.set_authoritative();
        let (zone, view) = (self.zone, self.view);
        let Some(at) = At::of(zone, view, name, found) else {
            self.deny(name, place, Denied::Name);
            return Next::Done(AnswerKind::NoName);
        };
        if matches!(rtype, RecordType::RRSIG | RecordType::NSEC) {
            return Next::Done(self.signature_or_nsec(&at, name, place, rtype));
        }
        let rtype = if rtype == RecordType::ANY { self.any_type(&at) } else { rtype };
        match at.set(rtype, view, &self.client, self.now) {
            Lookup::Set(set) => {
                let set_at = self.response.len();
                self.write(Section::Answer, set, name.as_wire(), place);
                self.additional(set, set_at, place);
                return Next::Done(AnswerKind::Records);
            }
            Lookup::Unknown => {
                self.response.set_rcode(Rcode::SERV_FAIL);
                return Next::Done(AnswerKind::Failed);
            }
            Lookup::Nothing => {}
        }
        if let Some(cname) = at.node.and_then(|node| node.set(RecordType::CNAME)) {
            if links == MAX_CHAIN {
                return Next::Done(AnswerKind::Records);
            }
            return Next::follow_or(self.alias(cname, name, place), AnswerKind::Records);
        }
        match at.node.filter(|node| node.is_cut()) {
            // A DS record: the parent answers for it.
            Some(node) => self.deny(name, place, Denied::Delegation(node)),
            None => self.deny(name, place, Denied::Types(&at)),
        }
        Next::Done(AnswerKind::NoData)
    }

    /// Answers for the types that DNSSEC makes: with the signatures of one set, or the NSEC record of the name. An alias
    /// has such records of its own (RFC 4035 section 2.5), so it is not followed.
    fn signature_or_nsec(&mut self, at: &At<'_>, name: &NameBuf, place: SetPlace, rtype: RecordType) -> AnswerKind {
        let signed = self.zone.keys().map(AsRef::as_ref);
        let set = match at.set(self.any_type(at), self.view, &self.client, self.now) {
            Lookup::Set(set) => Some(set),
            _ => None,
        };
        match (signed, set) {
            (Some(keys), _) if rtype == RecordType::NSEC => {
                // Also for a client that takes no signatures.
                let former = self.keys.replace(keys);
                self.write_nsec(Section::Answer, name.as_wire(), place, Denied::Types(at));
                self.keys = former;
            }
            (Some(keys), Some(set)) => {
                self.write_signatures(Section::Answer, set, set.ttl(), name.as_wire(), place, keys)
            }
            _ => {
                self.deny(name, place, Denied::Types(at));
                return AnswerKind::NoData;
            }
        }
        AnswerKind::Records
    }

    /// Writes the addresses of the hosts that a set names, as many as there is room for (RFC 1034 section 4.3.2, step
    /// 6). An alias is not followed.
    fn additional(&mut self, set: &RecordSet, set_at: usize, place: SetPlace) {
        if self.response.is_truncated() {
            return;
        }
        let before = match set.rtype() {
            RecordType::NS => 0,
            RecordType::MX | RecordType::SVCB | RecordType::HTTPS => 2,
            RecordType::SRV => 6,
            _ => return,
        };
        let (zone, view) = (self.zone, self.view);
        let mut known = [0_u16; MAX_HOSTS];
        let mut hosts = 0;
        let mut at = set_at;
        for (data, len) in set.data().zip(set.record_lens()) {
            let target_at = at + RecordSet::first_data_at() + before;
            at += len;
            let Some(target) = data.get(before..).and_then(NameBuf::read) else { continue };
            let wire = target.as_wire();
            if !is_suffix(wire, zone.apex().as_wire())
                || target_at > MAX_POINTER
                || hosts == MAX_HOSTS
                || known[..hosts].iter().any(|at| self.response.has_name_at(*at, wire))
            {
                continue;
            }
            known[hosts] = target_at as u16;
            hosts += 1;
            let place = SetPlace { owner: target_at as u16, apex: place.apex };
            let found = zone.find(&target, RecordType::A);
            for rtype in [RecordType::A, RecordType::AAAA] {
                match (found, At::of(zone, view, &target, found)) {
                    (_, Some(at)) => {
                        if let Lookup::Set(set) = at.set(rtype, view, &self.client, self.now) {
                            self.write_if_room(set, wire, place);
                        }
                    }
                    // Of a name below a delegation the zone has the addresses alone, unsigned.
                    (Found::Cut { .. }, None) => {
                        if let Some(set) = zone.find_glue(wire).and_then(|node| node.set(rtype)) {
                            self.response.write_optional(Section::Additional, set, place);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    /// Writes an additional set with its signatures, if there is room for both.
    fn write_if_room(&mut self, set: &RecordSet, owner: &[u8], place: SetPlace) {
        let before = self.response.mark();
        self.write(Section::Additional, set, owner, place);
        self.response.take_back_if_truncated(before);
    }

    //= RFC 8482 section 4.1
    //# A DNS responder that receives an ANY query MAY decline to provide a conventional ANY response or, instead,
    //# send a response with a single RRset (or a larger subset of available RRsets) in the answer section.
    fn any_type(&self, at: &At<'_>) -> RecordType {
        let first = at.node.and_then(|node| node.sets().first()).map(RecordSet::rtype);
        let address = || at.node.and_then(Node::addresses).map(|_| RecordType::A);
        first.or_else(address).unwrap_or(RecordType::TXT)
    }

    /// Writes a CNAME record. Returns its target.
    fn alias(&mut self, cname: &RecordSet, name: &NameBuf, place: SetPlace) -> Option<Step> {
        let target_at = self.response.len() + RecordSet::first_data_at();
        self.write(Section::Answer, cname, name.as_wire(), place);
        let target = NameBuf::read(cname.data().next()?)?;
        let is_apex = target.as_wire() == self.zone.apex().as_wire();
        // A pointer to a pointer would be legal, but the apex itself is at hand.
        let owner = if is_apex { place.apex } else { target_at as u16 };
        Some(Step { name: target, place: SetPlace { owner, apex: place.apex } })
    }

    /// Writes a DNAME record and the CNAME record that follows from it. Returns its target.
    // The CNAME record is for clients that do not know DNAME records (RFC 6672 section 3.1).
    fn redirect(&mut self, name: &NameBuf, place: SetPlace, node: &Node, labels: usize) -> Option<Step> {
        let dname = node.set(RecordType::DNAME)?;
        let owner = name.suffix(labels);
        let owner_at = self.suffix_place(name, place, labels);
        // One DNAME record may redirect several names of a chain.
        if !self.redirects.contains(&std::ptr::from_ref(dname)) {
            self.write(Section::Answer, dname, owner, SetPlace { owner: owner_at, apex: place.apex });
            self.redirects.rotate_right(1);
            self.redirects[0] = dname;
        }
        let target = dname.data().next()?;
        let prefix = name.as_wire().get(..name.as_wire().len() - owner.len())?;
        if prefix.len() + target.len() > MAX_NAME_BYTES {
            self.response.set_rcode(Rcode::YX_DOMAIN);
            return None;
        }
        let mut wire = [0; MAX_NAME_BYTES];
        wire[..prefix.len()].copy_from_slice(prefix);
        wire[prefix.len()..prefix.len() + target.len()].copy_from_slice(target);
        let wire = &wire[..prefix.len() + target.len()];
        let target_at = self.response.len() + RecordSet::first_data_at();
        let ttl = dname.ttl();
        self.response.write_with(Section::Answer, |out| {
            out.extend((0xc000 | place.owner).to_be_bytes());
            out.extend(RecordType::CNAME.0.to_be_bytes());
            out.extend(1_u16.to_be_bytes());
            out.extend(ttl.to_be_bytes());
            out.extend((wire.len() as u16).to_be_bytes());
            out.extend_from_slice(wire);
            1
        });
        let name = NameBuf::read(wire)?;
        let apex = target_at + name.suffix_at(self.zone.apex_labels());
        Some(Step { name, place: SetPlace { owner: target_at as u16, apex: apex as u16 } })
    }

    /// Writes a delegation: its name servers, their addresses, and whether it is signed.
    fn referral(&mut self, name: &NameBuf, place: SetPlace, node: &Node, labels: usize) {
        let Some(servers) = node.set(RecordType::NS) else { return };
        let cut = name.suffix(labels);
        let place = SetPlace { owner: self.suffix_place(name, place, labels), apex: place.apex };
        let servers_at = self.response.len();
        // The name servers are the child's to sign.
        self.response.write_set(Section::Authority, servers, place);
        if self.keys.is_some() {
            match node.set(RecordType::DS) {
                Some(ds) => self.write(Section::Authority, ds, cut, place),
                //= RFC 9824 section 3.4
                //# a referral to an unsigned subzone includes an NSEC record whose owner name matches the subzone
                None => self.write_nsec(Section::Authority, cut, place, Denied::Delegation(node)),
            }
        }
        self.glue(servers, servers_at, cut, place);
    }

    fn glue(&mut self, servers: &RecordSet, servers_at: usize, cut: &[u8], place: SetPlace) {
        let mut at = servers_at;
        for (data, len) in servers.data().zip(servers.record_lens()) {
            let target_at = at + RecordSet::first_data_at();
            at += len;
            if !is_suffix(data, self.zone.apex().as_wire()) || target_at > MAX_POINTER {
                continue;
            }
            let Some(node) = self.zone.find_glue(data) else { continue };
            for set in [RecordType::A, RecordType::AAAA].iter().filter_map(|rtype| node.set(*rtype)) {
                let place = SetPlace { owner: target_at as u16, apex: place.apex };
                let is_written = self.response.write_optional(Section::Additional, set, place);
                //= RFC 9471 section 3.1
                //# it MUST include all available glue records for in-domain name servers in the additional section or MUST
                //# set TC=1 if constrained by message size.
                if !is_written && is_suffix(data, cut) {
                    self.response.truncate();
                }
            }
        }
    }

    /// Where the last `labels` labels of a name are that is at `place`.
    fn suffix_place(&self, name: &NameBuf, place: SetPlace, labels: usize) -> u16 {
        if labels == self.zone.apex_labels() {
            return place.apex;
        }
        place.owner + name.suffix_at(labels) as u16
    }

    /// Writes a set with its signatures.
    pub(super) fn write(&mut self, section: Section, set: &RecordSet, owner: &[u8], place: SetPlace) {
        self.write_as(section, set, set.ttl(), owner, place);
    }

    /// Writes a set with its signatures. The set is sent with a shorter TTL than it has in the zone.
    pub(super) fn write_as(&mut self, section: Section, set: &RecordSet, ttl: u32, owner: &[u8], place: SetPlace) {
        self.response.write_set(section, set, place);
        if let Some(keys) = self.keys {
            self.write_signatures(section, set, ttl, owner, place, keys);
        }
    }

    /// Writes the signatures of a set.
    fn write_signatures(
        &mut self,
        section: Section,
        set: &RecordSet,
        ttl: u32,
        owner: &[u8],
        place: SetPlace,
        keys: &ZoneKeys,
    ) {
        let State { signatures, scratch, .. } = &mut *self.state;
        let (rtype, sent_ttl) = (set.rtype(), set.ttl());
        let signable = Signable { owner, rtype, ttl, sent_ttl, data: set.data() };
        let now = self.now;
        self.response
            .write_with(section, |out| write_signatures(signable, place.owner, keys, now, signatures, scratch, out));
    }
}
