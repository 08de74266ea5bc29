//! Whether the time of an answer tells if a user exists: wrong passwords of a user who does and of one
//! who does not, in no order, over one connection.
//!
//! The names have the same length, and the password of both is the same wrong one.
//! The one surprising thing: after each wrong password by Basic the client waits until the hasher has
//! rested from it, as an attacker would who wants to see the hash alone: otherwise the time of one
//! answer would hold three times the work for the one before.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use super::statistics::{self, Rank};
use super::{Algorithm, CLOSED_PATH, Closed, Login, Person};
use crate::Result;
use crate::load::{Client, Shot};
use crate::process::{self, Folder};
use crate::report::{self, Target, median};
use crate::store;

/// Of each of the two users.
const SAMPLES: usize = 2_000;
const SAMPLES_QUICK: usize = 200;
const WARM_UP: usize = 50;
/// A smaller probability is no accident.
const P_MIN: f64 = 0.001;

/// Nobody is shut out for being wrong.
const PATIENT: &str = "\n[server.limits]\nfailed_logins_max = 2000000000\n";

pub fn run(is_quick: bool) -> Result<()> {
    let nouns = process::build()?;
    let folder = Folder::new()?;
    let closed = Closed::fill(&nouns, &folder, 1_000, PATIENT)?;
    let (server, _) = closed.serve(&nouns)?;
    let address = server.address;
    let samples = if is_quick { SAMPLES_QUICK } else { SAMPLES };
    let (known, unknown) = (Person::new("admin", "wrong"), Person::new("nimda", "wrong"));
    let digest = |algorithm| -> Result<[Login; 2]> {
        Ok([known.digest(address, algorithm)?, unknown.digest(address, algorithm)?])
    };
    println!("\n{:<18} {:>14} {:>14} {:>8} {:>10}", "", "known, µs", "unknown, µs", "z", "p");
    let figures = [
        ("Digest MD5", compare("Digest MD5", address, &digest(Algorithm::Md5)?, samples)?),
        (
            "Digest SHA-256",
            compare("Digest SHA-256", address, &digest(Algorithm::Sha256)?, samples)?,
        ),
        ("Basic", compare("Basic", address, &[known.basic(), unknown.basic()], samples)?),
    ];
    let name = |scheme| format!("{scheme}, known and unknown alike, p");
    let names = figures.map(|(scheme, rank)| (name(scheme), rank.p));
    let judged: Vec<_> =
        names.iter().map(|(name, p)| (&**name, *p, Target::AtLeast(P_MIN))).collect();
    report::judge(&judged);
    println!("Mann-Whitney U, two-sided, {samples} samples each");
    Ok(())
}

fn compare(scheme: &str, address: SocketAddr, logins: &[Login; 2], samples: usize) -> Result<Rank> {
    let mut client = Client::connect(address)?;
    let shots = logins.each_ref().map(|login| Shot::get_as(CLOSED_PATH, login).wanting(401));
    let [known, unknown] = &shots;
    for _ in 0..WARM_UP.min(samples / 4) {
        sample(&mut client, known)?;
        sample(&mut client, unknown)?;
    }
    let mut order: Vec<bool> = (0..samples * 2).map(|number| number % 2 == 0).collect();
    store::shuffle(&mut order);
    let mut times = (Vec::new(), Vec::new());
    for is_known in order {
        if is_known {
            times.0.push(sample(&mut client, known)?);
        } else {
            times.1.push(sample(&mut client, unknown)?);
        }
    }
    let rank = statistics::mann_whitney(&times.0, &times.1);
    let (first, second) = (median(times.0), median(times.1));
    println!("{scheme:<18} {first:>14.2} {second:>14.2} {:>8.2} {:>10.6}", rank.z, rank.p);
    Ok(rank)
}

/// The time of one answer, in microseconds.
fn sample(client: &mut Client, shot: &Shot) -> Result<f64> {
    /// Longer than any answer takes for which nothing was hashed.
    const HASHED: Duration = Duration::from_millis(5);
    let began = Instant::now();
    client.send(shot)?;
    let took = began.elapsed();
    if took > HASHED {
        thread::sleep(took * 3 + Duration::from_millis(2));
    }
    Ok(report::micros(took))
}
