//! Sending: several producers at once. An aircraft's flights are all sent by one of them, so that
//! there is an order for them to have.

use log_client::{Client, Record};
use log_core::partitioner::partition_for;

use crate::Result;
use crate::events::Flight;

/// How many there are.
pub(crate) const PRODUCERS: u32 = 4;

/// Sends all flights and waits until they are acknowledged.
pub(crate) async fn send(client: &Client, topic: &str, flights: &[Flight]) -> Result<()> {
    let share = |number| async move {
        let producer = client.producer().build()?;
        let mut deliveries = Vec::new();
        for flight in flights.iter().filter(|flight| share_of(flight) == number) {
            let record = Record::new(flight.payload.as_bytes());
            let record = record.with_key(flight.aircraft.as_bytes());
            deliveries.push(producer.send(topic, &record).await?);
        }
        for delivery in deliveries {
            delivery.await?;
        }
        Result::Ok(producer.close().await?)
    };
    let (first, second, third, fourth) = tokio::join!(share(0), share(1), share(2), share(3));
    first.and(second).and(third).and(fourth)
}

/// Which producer sends a flight.
fn share_of(flight: &Flight) -> u32 {
    let producers = PRODUCERS.try_into().expect("more than none");
    partition_for(flight.aircraft.as_bytes(), producers)
}
