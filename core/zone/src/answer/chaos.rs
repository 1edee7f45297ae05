//! Questions about the server itself: class CH (RFC 4892).

use super::{
    outcome::{AnswerKind, Rcode},
    response::{Response, Section},
    settings::Settings,
};
use crate::{
    query::{CLASS_CH, Question},
    record::RecordType,
};

pub(super) fn answer(question: &Question, settings: &Settings, response: &mut Response<'_>) -> AnswerKind {
    let text = match question.name.as_wire() {
        b"\x02id\x06server\x00" | b"\x08hostname\x04bind\x00" => settings.identity.as_ref(),
        b"\x07version\x06server\x00" | b"\x07version\x04bind\x00" => settings.version.as_ref(),
        _ => None,
    };
    let Some(text) = text.filter(|_| matches!(question.rtype, RecordType::TXT | RecordType::ANY)) else {
        response.set_rcode(Rcode::REFUSED);
        return AnswerKind::Refused;
    };
    response.set_authoritative();
    response.write_with(Section::Answer, |out| {
        out.extend([0xc0, 12]);
        out.extend(RecordType::TXT.0.to_be_bytes());
        out.extend(CLASS_CH.to_be_bytes());
        out.extend(0_u32.to_be_bytes());
        out.extend((text.len() as u16 + 1).to_be_bytes());
        out.push(text.len() as u8);
        out.extend_from_slice(text.as_bytes());
        1
    });
    AnswerKind::Server
}
