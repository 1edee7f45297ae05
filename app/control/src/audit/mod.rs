//! The audit log of control: what each request leaves there, and other events.
//!
//! May use: `state`, `security`.

mod record;
mod trail;

pub(crate) use trail::{
    Actor, Trail, add_organisation, carry, current_trail, report_bad_token, set_action, set_actor, set_changed_fields,
    set_target,
};
