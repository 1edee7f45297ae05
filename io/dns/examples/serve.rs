//! Serves one zone from a master file: `serve ADDRESS ZONE FILE [THREADS] [sign]`. Benchmarks compare it with others.

use std::{error::Error, net::SocketAddr, sync::Arc};

use sallyport_dns::{Server, ServerConfig, bind};
use sallyport_zone::{
    Name, Settings, Zone, Zones,
    dnssec::{Algorithm, KeyRole, KeyTimes, SigningKey, ZoneKeys},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, address, apex, file, rest @ ..] = &arguments[..] else {
        return Err("serve ADDRESS ZONE FILE [THREADS] [sign]".into());
    };
    let (address, apex): (SocketAddr, Name) = (address.parse()?, apex.parse()?);
    let threads = rest.first().map_or(Ok(1), |threads| threads.parse())?;
    let keys = if rest.get(1).is_some_and(|word| word == "sign") {
        let key = SigningKey::from_secret(Algorithm::EcdsaP256Sha256, &[7; 32], KeyRole::Combined, KeyTimes::from(0))?;
        println!("{}", key.ds_text(&apex));
        Some(Arc::new(ZoneKeys::new(apex.clone(), vec![key], 3_600, 0)?))
    } else {
        None
    };
    let zone = Zone::from_master_file(apex, &std::fs::read_to_string(file)?, keys)?;
    let zones = Arc::new(Zones::new([Arc::new(zone)])?);
    let (udp, tcp) = bind(address, threads, false)?;
    let mut config = ServerConfig::default();
    config.state.rate.answers_per_second = 0;
    let server = Server::start(&config, zones, Arc::new(Settings::default()), udp, vec![tcp])?;
    println!("listening on {}", server.address());
    tokio::signal::ctrl_c().await?;
    server.stop().await;
    Ok(())
}
