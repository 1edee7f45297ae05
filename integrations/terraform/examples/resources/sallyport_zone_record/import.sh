terraform import sallyport_zone_record.mail example.com/0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b
