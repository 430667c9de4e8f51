//! A container with the engine's own network.

use std::net::Ipv4Addr;

use mini_ork_node::egress::NetworkPolicy;
use mini_ork_node::probe::Canary;

use crate::capture::Capture;
use crate::places::Place;
use crate::support::{Server, Zone};

#[test]
fn a_container_has_the_engines_network_when_it_was_asked_for() {
    let Some(place) = Place::in_container(NetworkPolicy::Full, Zone::of(&[]), Vec::new(), "")
    else {
        return;
    };
    let outer = place.engine.as_ref().unwrap().bridge_address().unwrap();
    let isolation = place.workspace().isolation();
    assert!(
        isolation.contains("the engine's own network"),
        "{isolation}"
    );
    assert!(isolation.contains("eth0"), "{isolation}");
    let canary = Canary::start().unwrap();
    let gateway = Server::web();
    let lead = place.serve(place.workspace().lead(gateway.port())).unwrap();
    let capture = Capture::start().unwrap();
    let said = place.run(&format!(
        "env | grep -ci _proxy; grep -c 127.1.0.1 /etc/resolv.conf\n\
         curl -s -m 20 --http0.9 http://{outer}:{}/; curl -s -m 20 http://{}:{}/lead",
        canary.port(),
        Ipv4Addr::LOCALHOST,
        gateway.port(),
    ));
    drop(lead);
    assert_eq!(said, format!("0\n0\n{}\n/lead", canary.word()));
    assert_eq!(canary.seen().connections, 1);
    // This is what the capture sees of a container that is not closed.
    assert!(capture.end().to(canary.port()) > 0);
}
