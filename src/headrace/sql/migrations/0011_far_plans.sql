-- Whether as many instants as may be are to be stored ahead: see plans_far.
alter type headrace.listed_task add attribute far boolean;
