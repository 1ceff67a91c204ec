// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All boots of the hypervisor, by topic.

use super::scenario::Scenario;
use super::{
    ablation, balloon, boards, boards_power, boards_x86, console, disks, drives, entropy, flat, gicv2,
    guests, guests_power, guests_x86, hostile_x86, hour, linux, linux_power, linux_x86, measuring,
    mitigations, mitigations_power, modes, networks, pause, plain, refusals, refusals_x86, scale, server,
    services, services_arm64, sharing, sharing_power, spared, statistics, uplinks, windows,
};

/// Those of the usual run and of the long one.
pub fn all() -> Vec<Scenario> {
    let topics = [
        // It takes minutes, with the image that is made for it: at the end of a run everything would wait for it alone.
        server::scenarios(),
        measuring::scenarios(),
        guests::scenarios(),
        flat::scenarios(),
        statistics::scenarios(),
        plain::scenarios(),
        refusals::scenarios(),
        refusals_x86::scenarios(),
        boards_x86::scenarios(),
        boards_power::scenarios(),
        guests_x86::scenarios(),
        guests_power::scenarios(),
        hostile_x86::scenarios(),
        linux::scenarios(),
        linux_x86::scenarios(),
        linux_power::scenarios(),
        sharing::scenarios(),
        sharing_power::scenarios(),
        scale::scenarios(),
        services::scenarios(),
        services_arm64::scenarios().into(),
        disks::scenarios(),
        drives::scenarios(),
        balloon::scenarios(),
        entropy::scenarios(),
        console::scenarios(),
        networks::scenarios(),
        uplinks::scenarios(),
        windows::scenarios().into(),
        pause::scenarios(),
        hour::scenarios(),
        ablation::scenarios(),
        modes::scenarios(),
        mitigations::scenarios(),
        mitigations_power::scenarios(),
        mitigations::scenarios_of_pcs(),
        gicv2::scenarios(),
        boards::scenarios(),
    ];
    let all = topics.into_iter().flatten();
    all.map(|scenario| if spared::has(&scenario.name) { scenario.long() } else { scenario }).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use turnstile::isa::Isa;
    use turnstile::layout::Layout;

    use super::*;

    const SERVICES: [&str; 12] = [
        "balloon",
        "console",
        "disk",
        "doorbell",
        "drive",
        "entropy",
        "misbehave",
        "overlay",
        "rng",
        "switch",
        "uart",
        "uart-16550",
    ];
    use turnstile::bench::platform::Platform;
    use turnstile::bench::{rows, subjects};
    use turnstile::config::{self, Surroundings};

    #[test]
    fn names_are_unique_and_configurations_good() {
        let guests = [
            "crash",
            "echo",
            "flash",
            "beacon",
            "facilities",
            "pressure",
            "share",
            "checker",
            "hostile",
            "restart",
            "selftest",
            "exits",
            "load",
            "measure",
            "service",
            "window",
            "witness",
            "block",
        ]
        .map(str::to_owned);
        let rows = rows::ROWS.iter().map(|row| row.guest.to_owned());
        let guests: Vec<String> = guests.into_iter().chain(rows).collect();
        let mut names = BTreeSet::new();
        for scenario in all() {
            assert!(names.insert(scenario.name.clone()), "{} is there twice", scenario.name);
            assert!(scenario.name.starts_with(&format!("{}/", scenario.isa)));
            let guests = |_| guests.clone();
            let surroundings = Surroundings {
                folder: Path::new(""),
                guests: &guests,
                services: &SERVICES.map(str::to_owned),
                board: None,
            };
            let config = config::parse(&scenario.config, &surroundings);
            assert!(config.is_ok(), "{}: {config:?}", scenario.name);
        }
    }

    #[test]
    fn the_longest_is_begun_first() {
        let first = all().into_iter().find(|scenario| !scenario.long).unwrap();
        assert_eq!(first.name, "arm64/server");
    }

    #[test]
    fn what_the_usual_run_spares_is_there() {
        let names: BTreeSet<String> = all().into_iter().map(|scenario| scenario.name).collect();
        let gone: Vec<_> = spared::NAMES.iter().filter(|name| !names.contains(**name)).collect();
        assert!(gone.is_empty(), "{gone:?}");
    }

    #[test]
    fn measuring_configurations_are_good() {
        let rows = || Isa::ALL.into_iter().flat_map(rows::of);
        let guests: Vec<String> = rows().map(|row| row.guest.to_owned()).collect();
        for row in rows() {
            let guests = |_| guests.clone();
            let surroundings = Surroundings {
                folder: Path::new(""),
                guests: &guests,
                services: &SERVICES.map(str::to_owned),
                board: None,
            };
            let config =
                config::parse(&subjects::config(row, 16, Platform::usual_of(row.isa), ""), &surroundings);
            assert!(config.is_ok(), "{}: {config:?}", row.name);
        }
    }

    /// Programs of both kinds are built into one folder, where the later one would take the place of the other.
    #[test]
    fn no_guest_has_the_name_of_a_service() {
        let layout = Layout::find().unwrap();
        let services = layout.service_names();
        for isa in Isa::ALL {
            let folder = layout.root().join(format!("guests/{isa}/src/bin"));
            for guest in std::fs::read_dir(folder).unwrap().flatten() {
                let name = guest.path().file_stem().unwrap().to_string_lossy().into_owned();
                assert!(!services.contains(&name), "{name} of {isa} is a service, too");
            }
        }
    }
}
