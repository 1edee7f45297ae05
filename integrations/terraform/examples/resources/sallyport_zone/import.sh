terraform import sallyport_zone.example example.com
