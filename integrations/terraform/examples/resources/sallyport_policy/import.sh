terraform import sallyport_policy.staff staff # its id or its name
