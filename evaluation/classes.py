"""The one table: every tool of the four suites, its class, and the reason for it.

A class is a claim about the outside system, and `evaluation/outside.py` offers what the table says, no more:

* `read`          it runs the function again; nothing changes.
* `keyed`         it answers a repeated reference with the first answer and does nothing more.
* `absolute`      it refuses a request that is based on another version of the record than today's (If-Match).
* `queryable`     it executes every request, also a repeated one, and can be asked about a reference.
* `irreversible`  it executes every request and answers no questions. Only a person, who has the ledger, can know.

No tool is `transactional`: none of these systems lives in the database of our journal.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

Class = Literal["read", "keyed", "absolute", "queryable", "irreversible"]


class Classed(NamedTuple):
    """The class of a tool, and why it is honest to claim it."""

    effect: Class
    why: str


_LOOKS = Classed("read", "looks, and changes nothing")

_READS = (
    # banking
    "get_iban",
    "get_balance",
    "get_most_recent_transactions",
    "get_scheduled_transactions",
    "read_file",
    "get_user_info",
    # slack
    "get_channels",
    "read_channel_messages",
    "read_inbox",
    "get_users_in_channel",
    # travel
    "get_user_information",
    "get_all_hotels_in_city",
    "get_hotels_prices",
    "get_rating_reviews_for_hotels",
    "get_hotels_address",
    "get_all_restaurants_in_city",
    "get_cuisine_type_for_restaurants",
    "get_restaurants_address",
    "get_rating_reviews_for_restaurants",
    "get_dietary_restrictions_for_all_restaurants",
    "get_contact_information_for_restaurants",
    "get_price_for_restaurants",
    "check_restaurant_opening_hours",
    "get_all_car_rental_companies_in_city",
    "get_car_types_available",
    "get_rating_reviews_for_car_rental",
    "get_car_fuel_options",
    "get_car_rental_address",
    "get_car_price_per_day",
    "get_flight_information",
    # workspace, whose calendar and mail travel uses too
    "get_sent_emails",
    "get_received_emails",
    "get_draft_emails",
    "search_emails",
    "search_contacts_by_name",
    "search_contacts_by_email",
    "get_current_day",
    "search_calendar_events",
    "get_day_calendar_events",
    "search_files_by_filename",
    "get_file_by_id",
    "list_files",
    "search_files",
)

CLASSES: Mapping[str, Classed] = dict.fromkeys(_READS, _LOOKS) | {
    # banking
    "send_money": Classed("queryable", "the reference stands in the statement; a second order would pay twice"),
    "schedule_transaction": Classed("keyed", "the bank takes the reference as an idempotency key"),
    "update_scheduled_transaction": Classed("absolute", "sets fields of one order, if its version is the one we saw"),
    "update_user_info": Classed("absolute", "sets fields of one record, if its version is the one we saw"),
    "update_password": Classed("absolute", "sets one field, if the record's version is the one we saw"),
    # slack
    "send_direct_message": Classed("queryable", "our reference is in the message's metadata; a second would be posted"),
    "send_channel_message": Classed(
        "queryable", "our reference is in the message's metadata; a second would be posted"
    ),
    "add_user_to_channel": Classed("queryable", "the audit log names the request; a second would list the user twice"),
    "invite_user_to_slack": Classed("absolute", "a member exists or not; based on a list without the user"),
    "remove_user_from_slack": Classed("absolute", "a member exists or not; based on a list with the user"),
    "get_webpage": Classed("keyed", "leaves a line in the web's log, so no read; the proxy replays a repeated request"),
    "post_webpage": Classed(
        "absolute", "a PUT with If-Match; a repeated one would leave a second line in the web's log"
    ),
    # travel
    "reserve_hotel": Classed("absolute", "sets the one reservation there is, if it is still the one we saw"),
    "reserve_restaurant": Classed("absolute", "sets the one reservation there is, if it is still the one we saw"),
    "reserve_car_rental": Classed("absolute", "sets the one reservation there is, if it is still the one we saw"),
    # workspace
    "send_email": Classed("irreversible", "mail takes no key, and who accepted a message cannot be asked about it"),
    "delete_email": Classed("absolute", "moves one mail to the trash, if the mailbox is the one we saw"),
    "get_unread_emails": Classed(
        "queryable", "marks as read what it shows, so a second shows less; the answer is kept"
    ),
    "create_calendar_event": Classed("keyed", "the caller chooses the event's id; the same id is the same event"),
    "cancel_calendar_event": Classed(
        "absolute", "sets a status with If-Match; a repeated one would mail everybody again"
    ),
    "reschedule_calendar_event": Classed("absolute", "sets times with If-Match; a repeated one would mail all again"),
    "add_calendar_event_participants": Classed(
        "absolute", "writes the list with If-Match; a repeated one would double it"
    ),
    "create_file": Classed("keyed", "the file's id is drawn beforehand; the same id is the same file"),
    "append_to_file": Classed("queryable", "the revisions name the request; a second would append the text twice"),
    "delete_file": Classed("absolute", "removes one file, if the drive is the one we saw"),
    "share_file": Classed("absolute", "sets one person's permission, if the drive is the one we saw"),
}
"""By name. A name has one class, also where two suites have the tool."""


def of(function: str) -> Class:
    """The class of a tool. Raises KeyError for a tool that is not in the table: nothing is classed by a default."""
    return CLASSES[function].effect
