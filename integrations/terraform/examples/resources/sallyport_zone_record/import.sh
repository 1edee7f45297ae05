terraform import sallyport_zone_record.www example.com/RECORD_ID
