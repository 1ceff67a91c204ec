// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command lines of the commands for machines that run.

use clap::Args;

use crate::config::parse_size;

/// `ls`
#[derive(Debug, Args)]
pub struct List {
    /// Write JSON instead of the table
    #[arg(long)]
    pub json: bool,
}

/// `start`, `stop`, `restart`, `pause`, `resume`
#[derive(Debug, Args)]
pub struct OfMachine {
    /// The machine: its name or process number, as `turnstile ls` lists it
    pub machine: String,
    /// Only this VM
    pub vm: Option<String>,
}

/// `kill-service`
#[derive(Debug, Args)]
pub struct KillService {
    /// The machine: its name or process number, as `turnstile ls` lists it
    pub machine: String,
    /// The service
    pub service: String,
}

/// `balloon`
#[derive(Debug, Args)]
pub struct Balloon {
    /// The machine: its name or process number, as `turnstile ls` lists it
    pub machine: String,
    /// The VM
    pub vm: String,
    /// How much of its memory it is to keep, such as 128MiB
    #[arg(value_parser = size)]
    pub size: u64,
}

fn size(text: &str) -> Result<u64, String> {
    match parse_size(text) {
        Ok(0) => Err("no guest does without memory: give what it is to keep".to_owned()),
        Ok(size) => Ok(size),
        Err((what, advice)) => Err(format!("{what}: {advice}")),
    }
}

/// `console`
#[derive(Debug, Args)]
pub struct Console {
    /// The machine: its name or process number, as `turnstile ls` lists it
    pub machine: String,
    /// The VM that is in front first; in a pipe, the only one
    pub vm: Option<String>,
}

/// `port`
#[derive(Debug, Args)]
pub struct Port {
    /// The machine: its name or process number, as `turnstile ls` lists it
    pub machine: String,
    /// The VM
    pub vm: String,
    /// The port, as `ports` of the VM names it
    pub port: String,
    /// End when standard input has ended and the guest has taken all of it
    #[arg(long)]
    pub send: bool,
}

/// `logs`
#[derive(Debug, Args)]
pub struct Logs {
    /// The machine: its name or process number, as `turnstile ls` lists it
    pub machine: String,
    /// Only this VM
    pub vm: Option<String>,
    /// Go on with what comes, until the machine ends
    #[arg(short, long)]
    pub follow: bool,
}
