#![no_main]

#[path = "../../core/packet/tests/it/tunnel_fuzz.rs"]
mod tunnel_fuzz;

thread_local! {
    static BALANCER: Option<sallyport_packet_model::balance::Steering> = tunnel_fuzz::balancer();
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| BALANCER.with(|balancer| {
    if let Some(balancer) = balancer {
        tunnel_fuzz::tunnel_frame(balancer, data);
    }
}));
