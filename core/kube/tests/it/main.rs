//! The rules of Kubernetes, case by case and at random.
#![allow(missing_docs, clippy::unwrap_used, clippy::missing_panics_doc, reason = "tests fail by panicking")]

mod annotations;
mod chart;
mod corpora;
mod endpoints;
mod given;
mod ingresses;
mod kube_fuzz;
mod others;
mod plans;
mod properties;
mod reports;
mod services;
