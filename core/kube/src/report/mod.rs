//! What people see in the cluster: conditions, Events and the status of load balancers, as values.

mod condition;
mod event;
mod load_balancer;

pub use condition::{CONDITION_EXPOSED, exposed};
pub use event::{EVENT_QUIET, Event, EventLog, EventType, MAX_REMEMBERED_EVENTS};
pub use load_balancer::{Served, load_balancer};

pub use crate::source::{
    Condition, ConditionStatus, LoadBalancerIngress, LoadBalancerStatus, MAX_MESSAGE_CHARS, PortStatus,
};
